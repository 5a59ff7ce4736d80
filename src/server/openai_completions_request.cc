#include "server/openai_completions_request.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"
#include "server/json_fields.h"
#include "server/openai_chat_request.h"
#include "server/prompt_fields.h"

namespace everwarm::server {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxLogprobs = 20;

absl::StatusOr<std::vector<TokenId>> ParseTokenIds(const Json& list,
                                                   const char* name) {
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (const Json& one : list) {
    if (!one.is_number_unsigned() ||
        one.get<uint64_t>() > static_cast<uint64_t>(kMaxInt32)) {
      return InvalidRequest(
          absl::StrCat("'", name, "' must hold token ids, and has ",
                       Quoted(one), " at ", tokens.size()),
          name);
    }
    tokens.push_back(static_cast<TokenId>(one.get<uint64_t>()));
  }
  return tokens;
}

absl::StatusOr<CompletionPrompt> ParsePrompt(const Json& prompt) {
  if (prompt.is_string() || prompt.is_array()) {
    if (prompt.empty() ||
        (prompt.is_string() && prompt.get_ref<const std::string&>().empty())) {
      return InvalidRequest("'prompt' is empty: there is nothing to go on from",
                            "prompt", "empty_prompt");
    }
    if (prompt.is_string()) {
      return CompletionPrompt(prompt.get<std::string>());
    }
    EW_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                        ParseTokenIds(prompt, "prompt"));
    return CompletionPrompt(std::move(tokens));
  }
  return InvalidRequest(
      absl::StrCat("'prompt' must be a string, an array of token ids, or an "
                   "array of these, and is ",
                   Quoted(prompt)),
      "prompt");
}

absl::StatusOr<std::vector<CompletionPrompt>> ParsePrompts(const Json& body) {
  const Json* field = FindField(body, "prompt");
  if (field == nullptr) {
    return InvalidRequest("'prompt' is missing", "prompt");
  }
  std::vector<CompletionPrompt> prompts;
  const bool several =
      field->is_array() && !field->empty() && !field->front().is_number();
  if (!several) {
    EW_ASSIGN_OR_RETURN(CompletionPrompt prompt, ParsePrompt(*field));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (field->size() > kMaxChoices) {
    return InvalidRequest(
        absl::StrCat("'prompt' must have at most ", kMaxChoices,
                     " prompts, and has ", field->size()),
        "prompt");
  }
  for (const Json& one : *field) {
    EW_ASSIGN_OR_RETURN(CompletionPrompt prompt, ParsePrompt(one));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

absl::StatusOr<CompletionRequest> ParseCompletionRequest(const Json& body) {
  CompletionRequest request;
  EW_ASSIGN_OR_RETURN(request.prompts, ParsePrompts(body));
  for (const char* name : {"suffix", "tools"}) {
    EW_RETURN_IF_ERROR(RefuseField(body, name));
  }
  EW_ASSIGN_OR_RETURN(request.options, ReadOpenAiOptions(body));
  GenerationOptions& options = request.options;
  EW_ASSIGN_OR_RETURN(const std::optional<uint32_t> best_of,
                      ReadCount(body, "best_of", {1, kMaxChoices}));
  if (best_of && *best_of != options.choices) {
    return InvalidRequest(absl::StrCat("'best_of' must be the same as 'n', ",
                                       options.choices, ", and is ", *best_of),
                          "best_of", "unsupported");
  }
  const size_t replies = request.prompts.size() * options.choices;
  if (replies > kMaxChoices) {
    return InvalidRequest(
        absl::StrCat("'n' replies to each prompt are ", replies,
                     " in all; at most ", kMaxChoices, " are possible"),
        "n");
  }
  EW_ASSIGN_OR_RETURN(request.form, ReadReplyFields(body));
  EW_ASSIGN_OR_RETURN(request.echo, BoolOr(body, "echo", false));
  const Json* logprobs = FindField(body, "logprobs");
  if (logprobs != nullptr && *logprobs != false) {
    EW_ASSIGN_OR_RETURN(options.top_logprobs,
                        ReadCount(body, "logprobs", {0, kMaxLogprobs}));
    if (request.echo) {
      return InvalidRequest(
          "'echo' with 'logprobs' is not supported: the prompt's tokens have "
          "none",
          "echo", "unsupported");
    }
  }
  return request;
}

absl::StatusOr<TokenizeRequest> ParseTokenizeRequest(const Json& body) {
  TokenizeRequest request;
  EW_ASSIGN_OR_RETURN(request.content, RequiredString(body, "content"));
  EW_ASSIGN_OR_RETURN(request.add_special, BoolOr(body, "add_special", false));
  EW_ASSIGN_OR_RETURN(request.parse_special,
                      BoolOr(body, "parse_special", true));
  EW_RETURN_IF_ERROR(RefuseField(body, "with_pieces"));
  return request;
}

absl::StatusOr<std::vector<TokenId>> ParseDetokenizeRequest(const Json& body) {
  const Json* tokens = FindField(body, "tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    return InvalidRequest("'tokens' must be an array of token ids", "tokens");
  }
  return ParseTokenIds(*tokens, "tokens");
}

}  // namespace everwarm::server
