// Answers and routes, as the families of endpoints write them.
//
// Not here: who may ask, and what HTTP itself refuses (server.cc).
#ifndef EVERWARM_SERVER_HTTP_ANSWER_H_
#define EVERWARM_SERVER_HTTP_ANSWER_H_

#include <httplib.h>

#include <functional>
#include <string>
#include <vector>

#include "server/api_error.h"
#include "server/json_text.h"

namespace everwarm::server {

// A path of the server. The handler is called by any HTTP worker, by several
// at once.
struct Route {
  std::string method;
  std::string path;
  std::function<void(const httplib::Request&, httplib::Response&)> handler;
};
using Routes = std::vector<Route>;

void SetJson(httplib::Response& response, int status, const Json& body);
// In OpenAI's form.
void SetError(httplib::Response& response, const ApiError& error);
// In the form of the API that the request's path belongs to.
void SetError(const httplib::Request& request, httplib::Response& response,
              const ApiError& error);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_HTTP_ANSWER_H_
