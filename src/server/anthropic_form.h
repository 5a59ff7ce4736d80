// Replies of /v1/messages.
#ifndef EVERWARM_SERVER_ANTHROPIC_FORM_H_
#define EVERWARM_SERVER_ANTHROPIC_FORM_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat_prompt.h"
#include "server/reply_form.h"
#include "server/reply_reader.h"

namespace everwarm::server {

class AnthropicForm final : public ReplyForm {
 public:
  struct Setup {
    std::string id;
    std::string model;
    uint32_t prompt_tokens = 0;
    // Computed tokens count as written to the cache, not as plain input.
    bool marks_cache = false;
    // The client's own; other strings end a reply without being named.
    std::vector<std::string> stop_sequences;
    std::shared_ptr<const models::ReplySyntax> syntax;
    std::function<std::string()> new_call_id;
  };
  explicit AnthropicForm(Setup setup)
      : setup_(std::move(setup)), reader_(setup_.syntax, setup_.new_call_id) {}

  const std::string& id() const override { return setup_.id; }
  Json Whole(std::vector<WholeChoice> choices) override;
  std::string Begin() override;
  std::string Text(size_t choice, const engine::TextEvent& text) override;
  std::string Finish(size_t choice,
                     const engine::FinishedEvent& finished) override;
  std::string End() override;
  std::string Fail(const ApiError& error) override;
  std::string Ping() override;

 private:
  Json Message(Json content) const;
  Json Usage(const engine::Usage& usage) const;
  // {"stop_reason", "stop_sequence"}.
  Json StopReason(const engine::FinishedEvent& finished) const;
  std::string Deltas(const ReplyDelta& delta);
  // Ends the open block, if it is another one, and begins this one.
  std::string Open(const std::string& kind, Json block);
  std::string Close();
  std::string Delta(Json delta) const;

  const Setup setup_;
  ReplyReader reader_;
  // The block that is being sent: "text", "thinking", or a call's id.
  std::string open_;
  int block_ = -1;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_ANTHROPIC_FORM_H_
