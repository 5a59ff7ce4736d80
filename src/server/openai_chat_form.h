// Replies of /v1/chat/completions.
#ifndef EVERWARM_SERVER_OPENAI_CHAT_FORM_H_
#define EVERWARM_SERVER_OPENAI_CHAT_FORM_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/chat_prompt.h"
#include "server/openai_json.h"
#include "server/reply_form.h"
#include "server/reply_reader.h"

namespace everwarm::server {

class OpenAiChatForm final : public ReplyForm {
 public:
  struct Setup {
    ReplyIdentity identity;
    size_t choices = 1;
    // A stream ends with its usage; every chunk before has "usage": null.
    bool include_usage = false;
    bool logprobs = false;
    std::shared_ptr<const models::ReplySyntax> syntax;
    std::function<std::string()> new_call_id;
    // Outlives this object.
    const TextFront* text_front = nullptr;
  };
  explicit OpenAiChatForm(Setup setup);

  const std::string& id() const override { return setup_.identity.id; }
  Json Whole(std::vector<WholeChoice> choices) override;
  std::string Begin() override;
  std::string Text(size_t choice, const engine::TextEvent& text) override;
  std::string Finish(size_t choice,
                     const engine::FinishedEvent& finished) override;
  std::string End() override;
  std::string Fail(const ApiError& error) override;
  std::string Ping() override;

 private:
  std::string Chunk(Json choices, Json usage = nullptr) const;
  std::string Choice(size_t choice, Json delta, Json reason);
  // The chunks of what is new in a choice.
  std::string Deltas(size_t choice, const ReplyDelta& delta);

  const Setup setup_;
  std::vector<ReplyReader> readers_;
  // Tokens whose text the reader still holds back.
  std::vector<std::vector<engine::ChosenToken>> tokens_;
  std::vector<engine::Usage> usages_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_CHAT_FORM_H_
