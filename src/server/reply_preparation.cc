#include "server/reply_preparation.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/api_error.h"

namespace everwarm::server {
namespace {

// What OpenAI generates when a completion does not say how much.
constexpr uint32_t kDefaultCompletionTokens = 16;

absl::StatusOr<std::vector<TokenId>> TokensOf(
    const Service& service, const models::RenderedPrompt& rendered,
    const std::string& name_space) {
  return service.text_front().TokenizePrompt(
      rendered.text,
      {.add_special = rendered.add_special, .parse_special = true}, name_space);
}

// Tokens that end before the last `bytes` bytes of the prompt's text.
TokenPos TokensBefore(const Service& service,
                      const std::vector<TokenId>& prompt, size_t bytes) {
  size_t behind = 0;
  size_t count = prompt.size();
  while (count > 0 && behind < bytes) {
    --count;
    behind += service.text_front().Detokenize({&prompt[count], 1}).size();
  }
  return static_cast<TokenPos>(count);
}

absl::Status CheckLength(const Service& service, size_t tokens) {
  if (tokens == 0) {
    return InvalidRequest("the prompt has no tokens", "prompt", "empty_prompt");
  }
  const uint32_t context = service.engine().context_size();
  if (tokens >= context) {
    return InvalidRequest(
        absl::StrCat("the context holds ", context,
                     " tokens, prompt and reply together, and the prompt has ",
                     tokens, "; it may have ", context - 1),
        "", "context_length_exceeded");
  }
  return absl::OkStatus();
}

absl::StatusOr<engine::Request> MakeRequest(const Service& service,
                                            std::vector<TokenId> prompt,
                                            const GenerationOptions& options,
                                            uint32_t default_max_tokens) {
  EW_RETURN_IF_ERROR(CheckLength(service, prompt.size()));
  for (const auto& [token, bias] : options.sampling.logit_bias) {
    EW_RETURN_IF_ERROR(service.CheckTokens({token}, "logit_bias"));
  }
  engine::Request request;
  request.max_tokens = std::min(
      options.max_tokens.value_or(default_max_tokens),
      service.engine().context_size() - static_cast<uint32_t>(prompt.size()));
  request.prompt = std::move(prompt);
  request.name_space = options.name_space;
  request.session = options.session;
  request.sampling = options.sampling;
  request.stops = options.stops;
  request.ignore_eos = options.ignore_eos;
  request.top_logprobs = options.top_logprobs;
  return request;
}

// The same request once for each choice, with a seed of its own.
void AddChoices(const engine::Request& request, uint32_t choices,
                std::vector<engine::Request>& into) {
  for (uint32_t i = 0; i < choices; ++i) {
    into.push_back(request);
    std::optional<uint32_t>& seed = into.back().sampling.seed;
    if (seed) {
      // The largest is the sampler's word for a random one.
      *seed = (*seed + i) % std::numeric_limits<uint32_t>::max();
    }
  }
}

absl::Status ShowControlTokens(const Service& service,
                               const std::vector<std::string>& texts,
                               engine::Request& request) {
  for (const std::string& text : texts) {
    EW_ASSIGN_OR_RETURN(
        const std::vector<TokenId> tokens,
        service.text_front().Tokenize(
            text, {.add_special = false, .parse_special = true}));
    if (tokens.size() == 1) {
      request.shown_control_tokens.push_back(tokens.front());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> CompletionGrammar(
    const CompletionRequest& request) {
  if (request.form.json_schema.empty()) {
    return request.form.grammar;
  }
  return models::JsonSchemaGrammar(request.form.json_schema);
}

// `own`: the client wrote it; otherwise it was made of schemas.
absl::StatusOr<std::shared_ptr<const models::Grammar>> Compile(
    const Service& service, const models::GrammarSpec& spec, bool own) {
  auto grammar = service.text_front().CompileGrammar(spec);
  if (absl::IsInvalidArgument(grammar.status())) {
    const absl::string_view message = grammar.status().message();
    return own ? InvalidRequest(absl::StrCat("'grammar': ", message), "grammar")
               : InvalidRequest(
                     absl::StrCat("no grammar can be made of the JSON schemas "
                                  "of the reply and its tools: ",
                                  message),
                     "", "invalid_json_schema");
  }
  return grammar;
}

}  // namespace

absl::StatusOr<PreparedReplies> PrepareChat(const Service& service,
                                            const models::ChatPrompt& prompt,
                                            GenerationOptions options) {
  EW_ASSIGN_OR_RETURN(models::RenderedPrompt rendered,
                      service.text_front().RenderChat(prompt));
  EW_ASSIGN_OR_RETURN(std::vector<TokenId> tokens,
                      TokensOf(service, rendered, options.name_space));
  for (std::string& stop : rendered.stops) {
    options.stops.push_back(std::move(stop));
  }
  EW_ASSIGN_OR_RETURN(engine::Request request,
                      MakeRequest(service, std::move(tokens), options,
                                  std::numeric_limits<uint32_t>::max()));
  if (rendered.cue_bytes > 0) {
    request.boundary =
        TokensBefore(service, request.prompt, rendered.cue_bytes);
  }
  if (rendered.grammar) {
    EW_ASSIGN_OR_RETURN(request.grammar, Compile(service, *rendered.grammar,
                                                 !prompt.grammar.empty()));
  }
  EW_RETURN_IF_ERROR(
      ShowControlTokens(service, rendered.shown_control_texts, request));
  PreparedReplies prepared;
  prepared.syntax = std::move(rendered.syntax);
  AddChoices(request, options.choices, prepared.requests);
  return prepared;
}

absl::StatusOr<PreparedReplies> PrepareCompletions(const Service& service,
                                                   CompletionRequest request) {
  std::shared_ptr<const models::Grammar> grammar;
  EW_ASSIGN_OR_RETURN(const std::string text, CompletionGrammar(request));
  if (!text.empty()) {
    EW_ASSIGN_OR_RETURN(grammar, Compile(service, {.text = text},
                                         request.form.json_schema.empty()));
  }
  PreparedReplies prepared;
  for (CompletionPrompt& prompt : request.prompts) {
    std::vector<TokenId> tokens;
    if (const auto* words = std::get_if<std::string>(&prompt)) {
      EW_ASSIGN_OR_RETURN(tokens, service.text_front().TokenizePrompt(
                                      *words, {}, request.options.name_space));
    } else {
      tokens = std::get<std::vector<TokenId>>(std::move(prompt));
    }
    EW_ASSIGN_OR_RETURN(engine::Request one,
                        MakeRequest(service, std::move(tokens), request.options,
                                    kDefaultCompletionTokens));
    one.grammar = grammar;
    AddChoices(one, request.options.choices, prepared.requests);
  }
  return prepared;
}

absl::StatusOr<size_t> CountPromptTokens(const Service& service,
                                         const models::ChatPrompt& prompt) {
  EW_ASSIGN_OR_RETURN(const models::RenderedPrompt rendered,
                      service.text_front().RenderChat(prompt));
  EW_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens,
                      TokensOf(service, rendered, ""));
  return tokens.size();
}

}  // namespace everwarm::server
