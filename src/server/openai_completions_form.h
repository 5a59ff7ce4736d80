// Replies of /v1/completions.
#ifndef EVERWARM_SERVER_OPENAI_COMPLETIONS_FORM_H_
#define EVERWARM_SERVER_OPENAI_COMPLETIONS_FORM_H_

#include <string>
#include <vector>

#include "server/openai_json.h"
#include "server/reply_form.h"

namespace everwarm::server {

class OpenAiCompletionsForm final : public ReplyForm {
 public:
  struct Setup {
    ReplyIdentity identity;
    // Texts that the choices begin with, one for each: the echo of a prompt.
    std::vector<std::string> beginnings;
    size_t choices_per_prompt = 1;
    // A stream ends with its usage; every chunk before has "usage": null.
    bool include_usage = false;
    bool logprobs = false;
    // Outlives this object.
    const TextFront* text_front = nullptr;
  };
  explicit OpenAiCompletionsForm(Setup setup);

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
  Json Choice(size_t choice, std::string_view text,
              const std::vector<engine::ChosenToken>& tokens, Json reason);

  const Setup setup_;
  // Where each choice's next token begins in its text, in bytes.
  std::vector<size_t> offsets_;
  std::vector<engine::Usage> usages_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_OPENAI_COMPLETIONS_FORM_H_
