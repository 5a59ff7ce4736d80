"""Keys, files and logs: who gets to see what was said."""
import os
import socket
import subprocess

import everwarm
from everwarm import question

MARK = "xylophone"

POSTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens",
         "/tokenize", "/detokenize", "/admin/cache/flush", "/admin/drain")
GETS = ("/v1/models", "/v1/models/some", "/stats", "/nothing")


def test_a_key_protects_everything_but_health(start):
    server = start("--api-key", "secret")
    for headers in ({}, {"Authorization": "Bearer secreT"}, {"Authorization": "secret"}, {"X-Api-Key": "secre"},
                    {"X-Api-Key": ""}):
        assert server.request("GET", "/health", headers=headers).status == 200
        for method, path in [("GET", path) for path in GETS] + [("POST", path) for path in POSTS]:
            answer = server.request(method, path, b"{}", headers)
            assert answer.status == 401, (path, headers)
            if path.startswith("/v1/messages"):
                assert answer.error["type"] == "authentication_error"
            else:
                assert answer.error["code"] == "invalid_api_key"
                assert answer.error["type"] == "invalid_request_error"
    for headers in ({"Authorization": "Bearer secret"}, {"x-api-key": "secret"}):
        assert server.request("GET", "/v1/models", headers=headers).status == 200
        assert server.request("POST", "/admin/drain", headers=headers).status == 200


def test_a_key_from_the_environment_protects_too(tmp_path):
    server = everwarm.Server(tmp_path / "cache", log=tmp_path / "log", environment={"EVERWARM_API_KEY": "secret"})
    try:
        assert server.request("GET", "/stats").status == 401
        assert server.request("GET", "/stats", headers={"X-Api-Key": "secret"}).status == 200
    finally:
        server.close()


def test_an_empty_key_is_refused_and_not_taken_for_none(tmp_path, tiny):
    command = everwarm.serve_command(tmp_path / "cache", model=tiny)
    for arguments, environment in (([], {"EVERWARM_API_KEY": ""}), (["--api-key", ""], {}), (["--api-key="], {})):
        result = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=120,
                                env={**everwarm.clean_environment(), **environment})
        assert result.returncode == 2, result.stdout
        line, = result.stderr.splitlines()
        assert "--api-key" in line or "EVERWARM_API_KEY is empty" in line, line


def test_a_web_page_of_somebody_else_gets_nothing(start, tiny):
    server = start("--allow-host", "box.lan,other.lan", model=tiny)
    here = f"127.0.0.1:{server.port}"
    foreign = ({"Host": f"evil.example:{server.port}"},  # its name was pointed here
               {"Host": here, "Origin": "https://evil.example"}, {"Host": here, "Origin": "null"})
    for headers in foreign:
        for method, path in [("GET", path) for path in GETS] + [("POST", path) for path in POSTS]:
            answer = server.request(method, path, b"{}", {"Content-Type": "text/plain", **headers})
            assert answer.status == 403, (path, headers)
            assert answer.error["type"] == ("permission_error" if path.startswith("/v1/messages") else "invalid_request_error")
    for headers in ({"Host": "localhost"}, {"Host": f"[::1]:{server.port}"}, {"Host": "box.lan"}, {"Host": "Other.lan:80"},
                    {"Origin": "http://localhost:3000"}, {"Origin": "http://box.lan"}):
        assert server.request("GET", "/stats", headers=headers).status == 200, headers
    # Of HTTP/1.0, without any host.
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(b"GET /stats HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.makefile("rb").readline()


def test_without_a_key_nobody_reaches_admin_by_way_of_a_proxy(start, tiny):
    server = start(model=tiny)
    for header in ("Forwarded", "X-Forwarded-For"):
        assert server.request("POST", "/admin/drain", headers={header: "10.0.0.1"}).status == 403
        assert server.request("GET", "/stats", headers={header: "10.0.0.1"}).status == 200
    assert server.request("POST", "/admin/drain").status == 200


def test_files_are_for_their_owner_alone_whatever_the_umask(start, cache_dir):
    before = os.umask(0)
    try:
        server = start()
    finally:
        os.umask(before)
    server.chat(question(200, MARK))
    assert server.stop() == 0
    assert cache_dir.stat().st_mode & 0o777 == 0o700
    seen = 0
    for path in cache_dir.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path
        seen += 1
    assert seen > 3


def test_an_open_cache_directory_is_pointed_out(start, cache_dir):
    cache_dir.mkdir(mode=0o755)
    cache_dir.chmod(0o755)
    server = start()
    assert str(cache_dir) in next(line for line in server.log_text().splitlines() if "others may" in line)


def test_nothing_that_was_said_is_in_the_log(start, cache_dir):
    server = start("--log-level", "debug")
    said = f"Tell me about the {MARK}"
    assert server.chat([{"role": "user", "content": said}]).status == 200
    assert server.chat([{"role": "user", "content": said}], stream=True).status == 200
    assert server.complete(said).status == 200
    assert server.complete(said * 3000).status == 400
    assert server.chat([{"role": MARK, "content": said}]).status == 400
    assert server.chat([{"role": "user", "content": [{"type": MARK, "text": said}]}]).status == 400
    assert server.complete(said, cache_salt=MARK).status == 200
    assert server.complete(said, 4, stop=[MARK]).status == 200
    assert server.request("POST", "/tokenize", {"content": said}).status == 200
    for path, body in (("/v1/responses", {"input": said, "max_output_tokens": 4}),
                       ("/v1/messages", {"max_tokens": 4, "system": said,
                                         "messages": [{"role": "user", "content": said}]}),
                       ("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": said}]})):
        assert server.request("POST", path, body).status == 200, path
        assert server.request("POST", path, {**body, "tools": [{"type": MARK, "name": MARK}]}).status == 400, path
    tool = {"type": "function", "function": {"name": MARK, "parameters": {"type": "object"}}}
    assert server.chat([{"role": "user", "content": said}], 4, tools=[tool]).status == 200
    for schema in ({"type": MARK}, {"type": "string", "pattern": f"^({MARK}$"}, {"enum": [MARK]},
                   {"type": "string", "pattern": f"(?={MARK})"}, {"type": "string", "pattern": f"^{MARK}\\b$"}):
        server.chat([{"role": "user", "content": said}], 4, response_format={
            "type": "json_schema", "json_schema": {"name": MARK, "schema": schema}})
    for grammar in (f"root ::= {MARK}", f"root {MARK}", f"root ::= [{MARK}"):
        assert server.complete(said, 4, grammar=grammar).status == 400
    for body in (b'{"prompt": "' + MARK.encode(), b'{"prompt": "' + MARK.encode() + b'\xff"}',
                 b'{"prompt": {"' + MARK.encode() + b'": 1}}', MARK.encode()):
        assert server.request("POST", "/v1/completions", body).status == 400
    # A write that fails is logged, without what was in the block.
    for directory in [path for path in cache_dir.iterdir() if path.is_dir()]:
        directory.rename(cache_dir / "moved")
        directory.write_text("in the way")
    server.complete(everwarm.document(200, MARK))
    server.flush()
    server.stop()
    log = server.log_text()
    assert "were not stored" in log
    assert MARK not in log
