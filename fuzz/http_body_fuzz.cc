// The body of a request to each path that takes one: no crash, an answer that
// is JSON, and never one that blames the server for what the client sent.
//
// The first byte says which path, the rest is the body. The engine and the text
// behind it are fakes: everything up to the engine is the product's.
#include <httplib.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "fuzz/fuzz.h"
#include "server/admin_endpoints.h"
#include "server/anthropic_endpoints.h"
#include "server/json_text.h"
#include "server/model_endpoints.h"
#include "server/openai_endpoints.h"
#include "server/responses_endpoints.h"
#include "server/service.h"
#include "testing/fake_engine.h"
#include "testing/fake_text_front.h"

using everwarm::fuzz::Require;
using everwarm::server::Route;
using everwarm::server::Routes;

namespace {

// A server without its sockets. There is one for all inputs, as in the product.
class Endpoints {
 public:
  Endpoints()
      : service_({.model_id = "fake"}, &clock_, everwarm::NullLogger()),
        models_(&service_),
        openai_(&service_),
        responses_(&service_),
        anthropic_(&service_),
        admin_(&service_, std::chrono::milliseconds(1000)) {
    engine_.SetScript({.pieces = {"a", "b"}});
    service_.SetReady(&engine_, &text_front_);
    for (const Routes& family :
         {models_.routes(), openai_.routes(), responses_.routes(),
          anthropic_.routes(), admin_.routes()}) {
      for (const Route& route : family) {
        if (route.method == "POST") {
          routes_.push_back(route);
        }
      }
    }
  }

  void Post(size_t path, std::string body) {
    const Route& route = routes_[path % routes_.size()];
    httplib::Request request;
    request.method = "POST";
    request.path = route.path;
    request.body = std::move(body);
    request.is_connection_closed = [] { return false; };
    httplib::Response response;
    route.handler(request, response);
    if (response.content_provider_) {
      return;  // a stream; the library sets its status
    }
    Require(response.status >= 200 && response.status < 500,
            "an answer that blames the server");
    const auto json =
        everwarm::server::Json::parse(response.body, nullptr, false);
    Require(json.is_object(), "an answer that is not JSON");
    Require((response.status == 200) !=
                (json.contains("error") && !json["error"].is_null()),
            "an error that looks like an answer, or the other way round");
    Require(service_.gate().open() == 0,
            "a place inside the gate that is never given back");
  }

 private:
  const everwarm::SystemClock clock_;
  everwarm::FakeEngine engine_;
  everwarm::FakeTextFront text_front_;
  everwarm::server::Service service_;
  everwarm::server::ModelEndpoints models_;
  everwarm::server::OpenAiEndpoints openai_;
  everwarm::server::ResponsesEndpoints responses_;
  everwarm::server::AnthropicEndpoints anthropic_;
  everwarm::server::AdminEndpoints admin_;
  std::vector<Route> routes_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Endpoints& endpoints = *new Endpoints;
  if (size > 0) {
    endpoints.Post(data[0], std::string(reinterpret_cast<const char*>(data) + 1,
                                        size - 1));
  }
  return 0;
}
