// The JSON of one HTTP request's replies in one API's form, whole or as events
// of a stream.
//
// Threads: one at a time.
#ifndef EVERWARM_SERVER_REPLY_FORM_H_
#define EVERWARM_SERVER_REPLY_FORM_H_

#include <cstddef>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/api_error.h"
#include "server/json_text.h"
#include "server/reply_set.h"

namespace everwarm::server {

class ReplyForm {
 public:
  virtual ~ReplyForm() = default;

  // For the log.
  virtual const std::string& id() const = 0;

  // Requires of both: the reason is not kCancelled, which is an error for the
  // client.
  virtual Json Whole(std::vector<WholeChoice> choices) = 0;

  // Bytes of server-sent events, in the order of the calls: Begin(), any number
  // of Text() and one Finish() for each choice, End(). May be empty.
  virtual std::string Begin() = 0;
  virtual std::string Text(size_t choice, const engine::TextEvent& text) = 0;
  virtual std::string Finish(size_t choice,
                             const engine::FinishedEvent& finished) = 0;
  virtual std::string End() = 0;
  // In place of all that is left: a stream that failed never looks whole.
  virtual std::string Fail(const ApiError& error) = 0;
  // Shows life while nothing comes.
  virtual std::string Ping() = 0;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_REPLY_FORM_H_
