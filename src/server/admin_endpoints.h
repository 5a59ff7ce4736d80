// Health, statistics and administration.
//
// Threads: handlers from any HTTP worker at once.
#ifndef EVERWARM_SERVER_ADMIN_ENDPOINTS_H_
#define EVERWARM_SERVER_ADMIN_ENDPOINTS_H_

#include <chrono>

#include "server/http_answer.h"
#include "server/service.h"

namespace everwarm::server {

class AdminEndpoints {
 public:
  // The service outlives this object.
  AdminEndpoints(Service* service, std::chrono::milliseconds flush_timeout)
      : service_(service), flush_timeout_(flush_timeout) {}

  // They refer to this object.
  Routes routes();

 private:
  void Health(const httplib::Request& request, httplib::Response& response);
  void Stats(const httplib::Request& request, httplib::Response& response);
  void Flush(const httplib::Request& request, httplib::Response& response);
  void CloseSession(const httplib::Request& request,
                    httplib::Response& response);
  void Drain(const httplib::Request& request, httplib::Response& response);

  Service* const service_;
  const std::chrono::milliseconds flush_timeout_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_ADMIN_ENDPOINTS_H_
