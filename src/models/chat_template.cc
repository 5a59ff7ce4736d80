#include "models/chat_template.h"

#include <exception>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "chat.h"
#include "llama.h"
#include "models/quiet_log.h"

namespace everwarm::models {

struct ChatTemplate::Impl {
  common_chat_templates_ptr templates;
  // Text of the token that Tokenize() puts first; empty when it puts none.
  std::string bos;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl)
    : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<std::unique_ptr<ChatTemplate>> ChatTemplate::Load(
    const Vocabulary& vocabulary) {
  SilenceLibraries();
  auto impl = std::make_unique<Impl>();
  const llama_vocab* vocab = vocabulary.llama();
  if (llama_vocab_get_add_bos(vocab)) {
    impl->bos = vocabulary.PieceWithControl(llama_vocab_bos(vocab));
  }
  const llama_model* model = vocabulary.llama_model_handle();
  try {
    // llama-common loses the parser's words on the way out, so it parses once
    // for them alone.
    if (const char* source = llama_model_chat_template(model, nullptr)) {
      const common_chat_template parsed(source, "", "");
    }
    impl->templates = common_chat_templates_init(model, "");
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the file's chat template does not parse: ", error.what()));
  }
  return std::unique_ptr<ChatTemplate>(new ChatTemplate(std::move(impl)));
}

absl::StatusOr<RenderedPrompt> ChatTemplate::Render(
    absl::Span<const ChatMessage> messages) const {
  common_chat_templates_inputs inputs;
  for (const ChatMessage& message : messages) {
    common_chat_msg chat_message;
    chat_message.role = message.role;
    chat_message.content = message.content;
    inputs.messages.push_back(std::move(chat_message));
  }
  inputs.add_generation_prompt = true;
  inputs.use_jinja = true;
  try {
    common_chat_params params =
        common_chat_templates_apply(impl_->templates.get(), inputs);
    RenderedPrompt prompt;
    prompt.add_special =
        impl_->bos.empty() || !absl::StartsWith(params.prompt, impl_->bos);
    prompt.text = std::move(params.prompt);
    prompt.stops = std::move(params.additional_stops);
    return prompt;
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the chat template refuses these messages: ", error.what()));
  }
}

}  // namespace everwarm::models
