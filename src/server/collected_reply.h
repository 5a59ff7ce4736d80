// A reply as a whole, for a client that did not ask for a stream.
#ifndef EVERWARM_SERVER_COLLECTED_REPLY_H_
#define EVERWARM_SERVER_COLLECTED_REPLY_H_

#include <functional>
#include <string>
#include <variant>

#include "engine/engine.h"
#include "server/api_error.h"

namespace everwarm::server {

struct CollectedReply {
  std::string text;
  engine::FinishedEvent finished;
};
struct ClientLeft {};

// Waits for the reply's end. `client_gone` is asked about every 50 ms; when it
// says yes, the reply is cancelled at once.
std::variant<CollectedReply, ApiError, ClientLeft> CollectReply(
    engine::Reply& reply, const std::function<bool()>& client_gone);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_COLLECTED_REPLY_H_
