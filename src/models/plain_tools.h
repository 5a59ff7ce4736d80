// Tools for chat templates that know none: they are described in the system's
// message, and calls and results are written as text between tags.
#ifndef EVERWARM_MODELS_PLAIN_TOOLS_H_
#define EVERWARM_MODELS_PLAIN_TOOLS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/chat_prompt.h"
#include "models/grammar.h"

namespace everwarm::models {

// The messages with the tools described in the first, system's one (added if
// there is none), calls written into the content of assistants, and results
// as a user's message (several in a row as one).
// Errors: kInvalidArgument, a tool's schema or a call's arguments are not JSON.
absl::StatusOr<std::vector<ChatMessage>> DescribePlainTools(
    const ChatPrompt& prompt);

// How a template marks an assistant's thoughts; empty: it does not.
struct ThinkingTags {
  std::string begin;
  std::string end;
  // The prompt ends inside of them.
  bool open = false;
};

struct PlainToolReply {
  GrammarSpec grammar;
  std::shared_ptr<const ReplySyntax> syntax;
};
// What a reply with such calls looks like, with thoughts before it if there are
// tags. Requires: there are tools, and calls are not forbidden.
// Errors: kInvalidArgument, a tool's schema cannot be followed.
absl::StatusOr<PlainToolReply> PlainToolReplyOf(const ChatPrompt& prompt,
                                                const ThinkingTags& thinking);

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_PLAIN_TOOLS_H_
