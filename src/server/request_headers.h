// What the headers of a request ask of the engine, whatever the API.
#ifndef EVERWARM_SERVER_REQUEST_HEADERS_H_
#define EVERWARM_SERVER_REQUEST_HEADERS_H_

#include <httplib.h>

#include "engine/engine.h"
#include "server/service.h"

namespace everwarm::server {

// "X-Everwarm-Wait-Durable: 1": the reply's end waits until the conversation is
// durable.
// "X-Session-Affinity: ID": the session, also where the body names another.
inline void ApplyHeaders(const httplib::Request& http, const Service& service,
                         engine::Request& request) {
  if (http.get_header_value("X-Everwarm-Wait-Durable") == "1") {
    request.wait_durable = service.durable_wait();
  }
  if (http.has_header("X-Session-Affinity")) {
    request.session = http.get_header_value("X-Session-Affinity")
                          .substr(0, engine::kMaxSessionBytes);
  }
}

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_REQUEST_HEADERS_H_
