#!/usr/bin/env python3
"""Fails when an include goes up the layers of src/, or brings in what a layer must not know.

The allowed arrows are those of docs/ARCHITECTURE.md. Run without arguments from anywhere.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Module -> modules whose headers it may include (besides its own).
ARROWS = {
    "base": set(),
    "cache": {"base"},
    "store": {"base", "cache"},
    "kernels": {"base"},
    "models": {"base", "kernels"},
    "engine": {"base", "cache", "models"},
    "server": {"base", "cache", "models", "engine"},
    "cli": {"base", "cache", "store", "kernels", "models", "engine", "server"},
}

# Foreign headers (regular expression) -> modules that may know them.
FOREIGN = {
    r"ggml.*\.h|gguf\.h": {"models", "cli"},
    r"llama\.h|llama-cpp\.h": {"models", "engine"},
    r"chat\.h|common\.h": {"models"},
    r"hwy/.*": {"kernels"},
    r"nlohmann/.*": {"models", "server", "cli"},
    r"httplib\.h": {"server"},
    r"liburing\.h|fcntl\.h|sys/stat\.h|fstream|filesystem": {"store", "models", "cli"},
    r"CLI/.*": {"cli"},
    r"gtest/.*|gmock/.*|benchmark/.*|testing/.*": set(),
}

INCLUDE = re.compile(r'^\s*#\s*include\s+[<"]([^>"]+)[>"]')


def is_test(path):
    return path.stem.endswith(("_test", "_bench"))


def check(path, module):
    errors = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        header = match.group(1)
        where = f"{path.relative_to(ROOT)}:{number}"
        target = header.split("/")[0]
        if target in ARROWS and "/" in header and target != module and target not in ARROWS[module]:
            errors.append(f"{where}: {module} may not include {header}")
        if is_test(path):
            continue
        for pattern, allowed in FOREIGN.items():
            if re.fullmatch(pattern, header) and module not in allowed:
                errors.append(f"{where}: {module} must not know {header}")
    return errors


def main():
    errors = []
    files = 0
    for module in sorted(path.name for path in (ROOT / "src").iterdir() if path.is_dir()):
        if module not in ARROWS:
            errors.append(f"src/{module}: no such module in tools/check_layers.py")
            continue
        for path in sorted((ROOT / "src" / module).rglob("*")):
            if path.suffix in (".h", ".cc"):
                files += 1
                errors += check(path, module)
    for error in errors:
        print(error)
    print(f"{files} files, {len(errors)} forbidden includes")
    return 1 if errors or not files else 0


if __name__ == "__main__":
    sys.exit(main())
