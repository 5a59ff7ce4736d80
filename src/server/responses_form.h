// Replies of /v1/responses.
#ifndef EVERWARM_SERVER_RESPONSES_FORM_H_
#define EVERWARM_SERVER_RESPONSES_FORM_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/chat_prompt.h"
#include "server/openai_json.h"
#include "server/reply_form.h"
#include "server/reply_reader.h"

namespace everwarm::server {

class ResponsesForm final : public ReplyForm {
 public:
  struct Setup {
    ReplyIdentity identity;
    // Fields of the request that the response repeats.
    Json echo = Json::object();
    std::shared_ptr<const models::ReplySyntax> syntax;
    // A new id with this prefix.
    std::function<std::string(const char*)> new_id;
    // Told the reply once it has ended well; may be empty.
    std::function<void(const models::ParsedReply&)> on_complete;
  };
  explicit ResponsesForm(Setup setup);

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
  enum class Kind { kReasoning, kMessage, kCall };
  // An item of the output while its text comes.
  struct OpenItem {
    Kind kind = Kind::kMessage;
    Json item;
    std::string text;
  };

  // The response as it is now.
  Json Response(const char* status) const;
  Json Ended(const engine::FinishedEvent& finished);
  std::string Event(const char* type, Json fields);
  // An event about the open item.
  std::string ItemEvent(const char* type, Json fields);
  std::string Deltas(const ReplyDelta& delta);
  std::string AddText(Kind kind, const std::string& text);
  std::string Open(Kind kind, Json item);
  std::string Close(const char* status);

  const Setup setup_;
  ReplyReader reader_;
  Json output_ = Json::array();
  std::optional<OpenItem> open_;
  int next_event_ = 0;
  Json ended_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_RESPONSES_FORM_H_
