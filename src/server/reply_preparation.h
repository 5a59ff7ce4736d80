// From what a client wants to requests that the engine takes.
//
// Threads: any.
// Errors:  kInvalidArgument (api_error.h): the template, the tokenizer or the
//          grammar refuses it, or it does not fit into the context; then the
//          code is "context_length_exceeded" and the message has both counts.
#ifndef EVERWARM_SERVER_REPLY_PREPARATION_H_
#define EVERWARM_SERVER_REPLY_PREPARATION_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "models/chat_prompt.h"
#include "server/generation_options.h"
#include "server/openai_completions_request.h"
#include "server/service.h"

namespace everwarm::server {

struct PreparedReplies {
  // For each prompt its choices, one after another.
  std::vector<engine::Request> requests;
  // How their texts are read; null: as they are.
  std::shared_ptr<const models::ReplySyntax> syntax;
};

// Without a limit the reply may fill the context.
absl::StatusOr<PreparedReplies> PrepareChat(const Service& service,
                                            const models::ChatPrompt& prompt,
                                            GenerationOptions options);

// Without a limit a reply has 16 tokens. Requires: the vocabulary has the
// prompts' token ids.
absl::StatusOr<PreparedReplies> PrepareCompletions(const Service& service,
                                                   CompletionRequest request);

// How many tokens the prompt has, whether or not the context holds them.
absl::StatusOr<size_t> CountPromptTokens(const Service& service,
                                         const models::ChatPrompt& prompt);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_REPLY_PREPARATION_H_
