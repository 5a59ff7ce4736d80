// The "messages" of a chat request.
#ifndef EVERWARM_SERVER_CHAT_MESSAGES_H_
#define EVERWARM_SERVER_CHAT_MESSAGES_H_

#include <vector>

#include "absl/status/statusor.h"
#include "models/chat_template.h"
#include "server/json_text.h"

namespace everwarm::server {

// Content that is null, missing, "" or [] is the same empty text, so that each
// form finds what the others left in the cache. Text parts are joined by a new
// line, as llama.cpp's server does.
// Errors: kInvalidArgument names the message and its part: an unknown role, no
//         messages at all, parts that are not text, tool calls.
absl::StatusOr<std::vector<models::ChatMessage>> ParseChatMessages(
    const Json& body);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_CHAT_MESSAGES_H_
