// Reads a reply's text as it comes: content, thoughts and calls of tools, and
// what is new of each.
//
// Threads: one at a time.
#ifndef EVERWARM_SERVER_REPLY_READER_H_
#define EVERWARM_SERVER_REPLY_READER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/chat_prompt.h"

namespace everwarm::server {

struct ReplyDelta {
  std::string reasoning;
  std::string content;
  struct Call {
    size_t index = 0;
    // Only where the call begins.
    std::string id;
    std::string name;
    // A piece of the JSON text.
    std::string arguments;
  };
  std::vector<Call> calls;

  bool empty() const {
    return reasoning.empty() && content.empty() && calls.empty();
  }
};

class ReplyReader {
 public:
  // Without a syntax all text is content. Calls that the model gave no id get
  // one of `new_call_id`.
  ReplyReader(std::shared_ptr<const models::ReplySyntax> syntax,
              std::function<std::string()> new_call_id)
      : syntax_(std::move(syntax)), new_call_id_(std::move(new_call_id)) {}

  // What is new with it; what may still turn out otherwise is held back.
  ReplyDelta Add(std::string_view text);
  // No more text comes: what was held back.
  ReplyDelta Finish();
  // Both at once, for a reply that nobody reads in pieces.
  const models::ParsedReply& ReadWhole(std::string_view text);

  // The sum of all deltas.
  const models::ParsedReply& reply() const { return reply_; }

 private:
  ReplyDelta Advance(models::ParsedReply parsed, bool last);

  const std::shared_ptr<const models::ReplySyntax> syntax_;
  const std::function<std::string()> new_call_id_;
  std::string text_;
  size_t parsed_bytes_ = 0;
  models::ParsedReply reply_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_REPLY_READER_H_
