#include "models/vocabulary.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "llama.h"
#include "models/deep_stack.h"
#include "models/gguf_file.h"
#include "models/quiet_log.h"

namespace everwarm::models {
namespace {

// llama.cpp counts bytes and tokens in 32 bits; this leaves room for both.
constexpr size_t kMaxTextBytes = size_t{1} << 30;

// What a thread's own stack is trusted with besides its caller's frames.
constexpr size_t kInlineStackBytes = size_t{256} << 10;
// Frames below and above the recursion.
constexpr size_t kSpareStackBytes = size_t{1} << 20;

constexpr size_t kProbeRun = 512;

// What llama.cpp does not check, or checks by aborting.
absl::Status CheckTokenizerKeys(const GgufFile& file) {
  EW_ASSIGN_OR_RETURN(const std::string model,
                      file.String("tokenizer.ggml.model"));
  if (model == "no_vocab" || model == "none") {
    return file.Invalid("has no vocabulary (tokenizer '" + model + "')");
  }
  const std::string key = "tokenizer.ggml.tokens";
  EW_ASSIGN_OR_RETURN(const std::vector<std::string> tokens,
                      file.StringArray(key));
  if (tokens.empty()) {
    return file.Invalid(absl::StrCat("key '", key, "' has no tokens"));
  }
  absl::flat_hash_set<std::string_view> seen;
  seen.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (!tokens[i].empty() && !seen.insert(tokens[i]).second) {
      return file.Invalid(absl::StrCat("key '", key, "' has token ", i, " ('",
                                       tokens[i], "') twice"));
    }
  }
  return absl::OkStatus();
}

// Runs of every kind of character that splitters tell apart.
std::string ProbeText() {
  std::string text;
  for (const char* character :
       {"A", "a", "7", "\u00e9", " ", "\n", "-", "$", "\U0001F600", "\u6f22"}) {
    for (size_t i = 0; i < kProbeRun; ++i) {
      text.append(character);
    }
  }
  return text;
}

// Nothing when llama.cpp throws; `error` then has its words.
std::optional<std::vector<TokenId>> TokenizeHere(
    const llama_vocab* vocab, std::string_view text,
    const Vocabulary::TokenizeOptions& options, std::string& error) {
  try {
    // A token for each byte and two at the ends is more than it needs, so the
    // second round is for tokenizers that expand.
    std::vector<TokenId> tokens(text.size() + 16);
    for (;;) {
      const int32_t count =
          llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()),
                         tokens.data(), static_cast<int32_t>(tokens.size()),
                         options.add_special, options.parse_special);
      if (count >= 0) {
        tokens.resize(static_cast<size_t>(count));
        tokens.shrink_to_fit();
        return tokens;
      }
      if (count == std::numeric_limits<int32_t>::min() ||
          tokens.size() >= static_cast<size_t>(-int64_t{count})) {
        error = "too many tokens";
        return std::nullopt;
      }
      tokens.resize(static_cast<size_t>(-int64_t{count}));
    }
  } catch (const std::exception& exception) {
    error = exception.what();
    return std::nullopt;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Vocabulary>> Vocabulary::Load(
    const std::string& path) {
  SilenceLibraries();
  {
    EW_ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> file,
                        GgufFile::Open(path));
    EW_RETURN_IF_ERROR(CheckTokenizerKeys(*file));
  }
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  std::unique_ptr<Vocabulary> vocabulary(new Vocabulary());
  TakeLibraryErrors();
  try {
    vocabulary->model_ = llama_model_load_from_file(path.c_str(), params);
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": vocabulary: ", error.what()));
  }
  if (vocabulary->model_ == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": the vocabulary cannot be loaded: ", TakeLibraryErrors()));
  }
  vocabulary->vocab_ = llama_model_get_vocab(vocabulary->model_);
  vocabulary->MeasureStack();
  vocabulary->MeasurePieces();
  return vocabulary;
}

Vocabulary::~Vocabulary() { llama_model_free(model_); }

void Vocabulary::MeasureStack() {
  const std::string text = ProbeText();
  std::string error;
  const absl::StatusOr<size_t> reached =
      RunOnStack(kSpareStackBytes + kProbeRun * 4096,
                 [&] { TokenizeHere(vocab_, text, TokenizeOptions{}, error); });
  // Without recursion a few pages are reached whatever the run; with it, 321
  // bytes per character were measured for GCC 12.
  const size_t per_byte = reached.ok() ? *reached / kProbeRun : 0;
  constexpr size_t kFlat = 96;
  stack_per_byte_ = per_byte > kFlat ? per_byte * 3 / 2 : 0;
}

void Vocabulary::MeasurePieces() {
  for (uint32_t token = 0; token < size(); ++token) {
    bound_.Add(PieceWithControl(static_cast<TokenId>(token)));
    // As the vocabulary writes it, which may be longer.
    bound_.Add(llama_vocab_get_text(vocab_, static_cast<TokenId>(token)));
  }
}

absl::StatusOr<std::vector<TokenId>> Vocabulary::Tokenize(
    std::string_view text, const TokenizeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", text.size(), " bytes; at most ",
                     kMaxTextBytes, " can be tokenized"));
  }
  std::string error;
  std::optional<std::vector<TokenId>> tokens;
  const size_t stack = text.size() * stack_per_byte_;
  if (stack <= kInlineStackBytes) {
    tokens = TokenizeHere(vocab_, text, options, error);
  } else if (stack > kMaxStackBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", text.size(),
                     " bytes is too long for this tokenizer; it "
                     "takes at most ",
                     kMaxStackBytes / stack_per_byte_));
  } else {
    const absl::StatusOr<size_t> reached = RunOnStack(
        stack + kSpareStackBytes,
        [&] { tokens = TokenizeHere(vocab_, text, options, error); });
    EW_RETURN_IF_ERROR(reached.status());
  }
  if (!tokens) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text cannot be tokenized: ", error));
  }
  return *std::move(tokens);
}

std::string Vocabulary::PieceOf(TokenId token, bool control) const {
  if (token < 0 || static_cast<uint32_t>(token) >= size()) {
    return std::string();
  }
  std::string piece(32, '\0');
  const auto write = [&] {
    return llama_token_to_piece(vocab_, token, piece.data(),
                                static_cast<int32_t>(piece.size()), 0, control);
  };
  int32_t length = write();
  if (length < 0) {
    piece.resize(static_cast<size_t>(-length));
    length = write();
  }
  piece.resize(static_cast<size_t>(std::max(length, 0)));
  return piece;
}

std::string Vocabulary::Piece(TokenId token) const {
  return PieceOf(token, false);
}

std::string Vocabulary::PieceWithControl(TokenId token) const {
  return PieceOf(token, true);
}

bool Vocabulary::IsEndOfGeneration(TokenId token) const {
  return token >= 0 && static_cast<uint32_t>(token) < size() &&
         llama_vocab_is_eog(vocab_, token);
}

uint32_t Vocabulary::size() const {
  return static_cast<uint32_t>(llama_vocab_n_tokens(vocab_));
}

}  // namespace everwarm::models
