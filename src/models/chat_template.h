// The chat template of a GGUF, rendered by llama.cpp's own engine.
#ifndef EVERWARM_MODELS_CHAT_TEMPLATE_H_
#define EVERWARM_MODELS_CHAT_TEMPLATE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "models/vocabulary.h"

namespace everwarm::models {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant", "tool"
  std::string content;
};

struct RenderedPrompt {
  // Tokenize with add_special = false when it already begins with BOS; see
  // add_special.
  std::string text;
  bool add_special = true;
  // Strings that end a reply, besides the vocabulary's end-of-generation
  // tokens.
  std::vector<std::string> stops;
};

// Threads: any.
class ChatTemplate {
 public:
  // Errors: kInvalidArgument, the file's template does not parse. A file
  // without one gets llama.cpp's default (ChatML).
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(
      const Vocabulary& vocabulary);
  ~ChatTemplate();

  // The prompt up to where the assistant's reply begins.
  // Errors: kInvalidArgument, the template refuses these messages (its own
  // words).
  absl::StatusOr<RenderedPrompt> Render(
      absl::Span<const ChatMessage> messages) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_CHAT_TEMPLATE_H_
