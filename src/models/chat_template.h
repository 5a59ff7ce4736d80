// The chat template of a GGUF, rendered by llama.cpp's own engine, and what
// comes with it: how a reply must look and how it is read.
#ifndef EVERWARM_MODELS_CHAT_TEMPLATE_H_
#define EVERWARM_MODELS_CHAT_TEMPLATE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "models/chat_prompt.h"
#include "models/grammar.h"
#include "models/vocabulary.h"

namespace everwarm::models {

struct RenderedPrompt {
  // Tokenize with add_special = false when it already begins with BOS; see
  // add_special.
  std::string text;
  bool add_special = true;
  // Bytes at the end of the text that a later prompt of the same conversation
  // may lack, whatever the reply will be: the cue for the assistant, where the
  // template writes the cue of a finished turn in another way.
  size_t cue_bytes = 0;
  // Strings that end a reply, besides the vocabulary's end-of-generation
  // tokens.
  std::vector<std::string> stops;
  // What the reply must follow; nothing: it is free.
  std::optional<GrammarSpec> grammar;
  // Texts of control tokens that the syntax needs to see in the reply.
  std::vector<std::string> shown_control_texts;
  // Null: the text is the content.
  std::shared_ptr<const ReplySyntax> syntax;
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
  // words), or a schema cannot be followed.
  absl::StatusOr<RenderedPrompt> Render(const ChatPrompt& prompt) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace everwarm::models

#endif  // EVERWARM_MODELS_CHAT_TEMPLATE_H_
