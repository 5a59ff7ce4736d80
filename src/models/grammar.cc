#include "models/grammar.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "common.h"
#include "json-schema-to-grammar.h"
#include "llama.h"
#include "models/deep_stack.h"
#include "models/grammar_text.h"
#include "models/quiet_log.h"

namespace everwarm::models {
namespace {

// The parser recurses for each bracket and each rule that refers to another.
constexpr size_t kMaxGrammarBytes = size_t{1} << 20;
constexpr size_t kStackPerByte = 512;
constexpr size_t kSpareStack = size_t{1} << 20;

// Text without a trigger that a lazy grammar's patterns are tried on; a reply
// that got so far stays free.
constexpr size_t kMaxPatternText = size_t{16} << 10;

struct SamplerDeleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using SamplerPtr = std::unique_ptr<llama_sampler, SamplerDeleter>;

std::vector<const char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<const char*> pointers;
  pointers.reserve(texts.size());
  for (const std::string& text : texts) {
    pointers.push_back(text.c_str());
  }
  return pointers;
}

absl::StatusOr<SamplerPtr> MakeSampler(const llama_vocab* vocab,
                                       const GrammarSpec& spec) {
  SamplerPtr sampler;
  std::string error;
  const auto make = [&] {
    if (const absl::Status text = CheckGrammarText(vocab, spec.text);
        !text.ok()) {
      error = std::string(text.message());
      return;
    }
    try {
      if (spec.lazy) {
        std::vector<std::string> patterns = spec.trigger_patterns;
        for (const std::string& word : spec.trigger_words) {
          patterns.push_back(regex_escape(word));
        }
        std::vector<const char*> pointers = Pointers(patterns);
        sampler.reset(llama_sampler_init_grammar_lazy_patterns(
            vocab, spec.text.c_str(), "root", pointers.data(), pointers.size(),
            nullptr, 0));
      } else {
        sampler.reset(
            llama_sampler_init_grammar(vocab, spec.text.c_str(), "root"));
      }
      if (sampler == nullptr) {
        error = TakeLibraryErrors();
      }
    } catch (const std::exception& exception) {
      error = exception.what();
    }
  };
  EW_RETURN_IF_ERROR(
      RunOnStack(kSpareStack + spec.text.size() * kStackPerByte, make)
          .status());
  if (sampler == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("the grammar cannot be followed: ", error));
  }
  return sampler;
}

}  // namespace

struct Grammar::State {
  const Vocabulary* vocabulary = nullptr;
  SamplerPtr sampler;
  bool constrains = true;

  // Of a lazy grammar that waits for a word: the latest tokens and their text,
  // as much as may be the beginning of one.
  std::vector<std::string> words;
  size_t longest_word = 0;
  std::deque<TokenId> recent;
  std::string recent_text;

  // Of one that waits for a pattern: the library looks for it and does not say
  // whether it has found it.
  bool has_patterns = false;
  size_t pattern_text = 0;

  State() = default;
  State(const State& other)
      : vocabulary(other.vocabulary),
        sampler(llama_sampler_clone(other.sampler.get())),
        constrains(other.constrains),
        words(other.words),
        longest_word(other.longest_word),
        recent(other.recent),
        recent_text(other.recent_text),
        has_patterns(other.has_patterns),
        pattern_text(other.pattern_text) {}
  State& operator=(const State&) = delete;

  void Take(TokenId token) { llama_sampler_accept(sampler.get(), token); }
  bool SeesWord(TokenId token);
  void TakeWaitingForPattern(TokenId token);
  bool ForbidsAnything() const;
  void GiveUp() {
    constrains = false;
    has_patterns = false;
    words.clear();
    longest_word = 0;
  }
};

// The library's own search would begin anew over the whole reply with each
// token.
bool Grammar::State::SeesWord(TokenId token) {
  recent.push_back(token);
  recent_text += vocabulary->PieceWithControl(token);
  for (const std::string& word : words) {
    if (recent_text.find(word) != std::string::npos) {
      return true;
    }
  }
  while (!recent.empty()) {
    const size_t length = vocabulary->PieceWithControl(recent.front()).size();
    if (recent_text.size() - length < longest_word) {
      break;
    }
    recent_text.erase(0, length);
    recent.pop_front();
  }
  return false;
}

void Grammar::State::TakeWaitingForPattern(TokenId token) {
  pattern_text += vocabulary->PieceWithControl(token).size();
  if (pattern_text > kMaxPatternText) {
    if (!ForbidsAnything()) {
      GiveUp();
      return;
    }
    has_patterns = false;  // it has begun
  }
  Take(token);
}

bool Grammar::State::ForbidsAnything() const {
  std::vector<llama_token_data> all;
  all.reserve(vocabulary->size());
  for (uint32_t i = 0; i < vocabulary->size(); ++i) {
    all.push_back({static_cast<llama_token>(i), 0.0f, 0.0f});
  }
  llama_token_data_array array = {all.data(), all.size(), -1, false};
  llama_sampler_apply(sampler.get(), &array);
  return std::any_of(all.begin(), all.end(), [](const llama_token_data& one) {
    return !std::isfinite(one.logit);
  });
}

Grammar::Grammar(std::unique_ptr<State> state) : state_(std::move(state)) {}
Grammar::~Grammar() = default;

absl::StatusOr<std::unique_ptr<Grammar>> Grammar::Compile(
    const Vocabulary& vocabulary, const GrammarSpec& spec) {
  SilenceLibraries();
  if (spec.text.size() > kMaxGrammarBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a grammar of ", spec.text.size(), " bytes; at most ",
                     kMaxGrammarBytes, " can be followed"));
  }
  if (spec.text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return absl::InvalidArgumentError("the grammar is empty");
  }
  // The library would take it for the end.
  if (spec.text.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError("the grammar has a character of value 0");
  }
  auto state = std::make_unique<State>();
  state->vocabulary = &vocabulary;
  EW_ASSIGN_OR_RETURN(state->sampler, MakeSampler(vocabulary.llama(), spec));
  if (spec.lazy) {
    state->has_patterns = !spec.trigger_patterns.empty();
    state->constrains = state->has_patterns;
    state->words = spec.trigger_words;
    for (const std::string& word : spec.trigger_words) {
      state->longest_word = std::max(state->longest_word, word.size());
    }
  }
  auto grammar = std::unique_ptr<Grammar>(new Grammar(std::move(state)));
  if (!spec.lazy && !spec.behind.empty()) {
    EW_ASSIGN_OR_RETURN(
        const std::vector<TokenId> tokens,
        vocabulary.Tokenize(spec.behind,
                            {.add_special = false, .parse_special = true}));
    for (const TokenId token : tokens) {
      EW_RETURN_IF_ERROR(grammar->Accept(token));
    }
  }
  return grammar;
}

std::unique_ptr<Grammar> Grammar::Clone() const {
  return std::unique_ptr<Grammar>(
      new Grammar(std::make_unique<State>(*state_)));
}

bool Grammar::constrains() const { return state_->constrains; }

bool Grammar::Allows(TokenId token) const {
  if (!state_->constrains) {
    return true;
  }
  llama_token_data one = {token, 0.0f, 0.0f};
  llama_token_data_array array = {&one, 1, -1, false};
  llama_sampler_apply(state_->sampler.get(), &array);
  return std::isfinite(one.logit);
}

void Grammar::Mask(absl::Span<float> logits) const {
  if (!state_->constrains) {
    return;
  }
  std::vector<llama_token_data> candidates;
  candidates.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    if (std::isfinite(logits[i])) {
      candidates.push_back({static_cast<llama_token>(i), logits[i], 0.0f});
    }
  }
  llama_token_data_array array = {candidates.data(), candidates.size(), -1,
                                  false};
  llama_sampler_apply(state_->sampler.get(), &array);
  for (const llama_token_data& candidate : candidates) {
    logits[static_cast<size_t>(candidate.id)] = candidate.logit;
  }
}

absl::Status Grammar::Accept(TokenId token) {
  if (state_->vocabulary->IsEndOfGeneration(token)) {
    return absl::OkStatus();
  }
  const bool waits = state_->has_patterns || !state_->constrains;
  try {
    if (state_->has_patterns) {
      state_->TakeWaitingForPattern(token);
    } else if (state_->constrains) {
      state_->Take(token);
    } else if (state_->SeesWord(token)) {
      for (const TokenId one : state_->recent) {
        state_->Take(one);
      }
      state_->constrains = true;
    }
  } catch (const std::exception&) {
    if (waits) {
      state_->GiveUp();
      return absl::OkStatus();
    }
    // The library's words have the text, which is no log's business.
    return absl::InternalError(
        "a token that the grammar does not allow was chosen");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> JsonSchemaGrammar(const std::string& schema) {
  try {
    return json_schema_to_grammar(common_json::parse(schema));
  } catch (const std::exception& exception) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no grammar can be made of the JSON schema: ", exception.what()));
  }
}

}  // namespace everwarm::models
