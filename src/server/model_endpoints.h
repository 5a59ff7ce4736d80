// The loaded model: its name, and its vocabulary for those who count tokens.
//
// Threads: handlers from any HTTP worker at once.
#ifndef EVERWARM_SERVER_MODEL_ENDPOINTS_H_
#define EVERWARM_SERVER_MODEL_ENDPOINTS_H_

#include "server/http_answer.h"
#include "server/service.h"

namespace everwarm::server {

class ModelEndpoints {
 public:
  // The service outlives this object.
  explicit ModelEndpoints(Service* service) : service_(service) {}

  // They refer to this object.
  Routes routes();

 private:
  void Models(const httplib::Request& request, httplib::Response& response);
  void Model(const httplib::Request& request, httplib::Response& response);
  void Tokenize(const httplib::Request& request, httplib::Response& response);
  void Detokenize(const httplib::Request& request, httplib::Response& response);

  Service* const service_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_MODEL_ENDPOINTS_H_
