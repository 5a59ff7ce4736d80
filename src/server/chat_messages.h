// The "messages" of OpenAI's chat, and what other APIs share of their reading.
//
// Threads: pure, any.
// Errors:  kInvalidArgument names the message and its part (api_error.h).
#ifndef EVERWARM_SERVER_CHAT_MESSAGES_H_
#define EVERWARM_SERVER_CHAT_MESSAGES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/chat_prompt.h"
#include "server/json_text.h"

namespace everwarm::server {

// Content that is null, missing, "" or [] is the same empty text, so that each
// form finds what the others left in the cache. Text parts are joined by a new
// line, as llama.cpp's server does. Roles are "system", "user", "assistant" and
// "tool"; "developer" is "system".
// Errors: an unknown role, no messages at all, parts that are not text, calls
//         whose arguments are not an object.
absl::StatusOr<std::vector<models::ChatMessage>> ParseChatMessages(
    const Json& body);

// A string, text parts, or nothing.
absl::StatusOr<std::string> ParseTextContent(const Json* content,
                                             const std::string& where);

// The call has a name, and arguments that a template can write.
absl::Status CheckToolCall(const models::ToolCall& call,
                           const std::string& where);

// Gives results the name of the tool that their call's id belongs to, for
// templates that write it.
void NameToolResults(std::vector<models::ChatMessage>& messages);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_CHAT_MESSAGES_H_
