#include "server/server.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <exception>
#include <iterator>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/access.h"
#include "server/admin_endpoints.h"
#include "server/anthropic_endpoints.h"
#include "server/api_error.h"
#include "server/http_answer.h"
#include "server/model_endpoints.h"
#include "server/openai_endpoints.h"
#include "server/responses_endpoints.h"
#include "server/service.h"

namespace everwarm::server {
namespace {

// Seconds that a client may take to send or to receive the next piece.
constexpr time_t kReadTimeout = 30;
constexpr time_t kWriteTimeout = 30;
// Connections that wait for a worker; more are closed.
constexpr size_t kMaxQueuedConnections = 512;

// What proxies add to a request, and no client does.
constexpr const char* kProxyHeaders[] = {"Forwarded", "X-Forwarded-For",
                                         "X-Real-IP", "Via"};

using Handled = httplib::Server::HandlerResponse;

// What a client chose, for a line of the log: no end of a line, no escape
// sequence for a terminal, and not as long as the client likes.
std::string Loggable(std::string_view text) {
  constexpr size_t kMost = 200;
  return absl::StrCat(absl::CHexEscape(std::string(text.substr(0, kMost))),
                      text.size() > kMost ? "..." : "");
}

}  // namespace

absl::Status Server::Config::Validate() const {
  if (host.empty()) {
    return absl::InvalidArgumentError("the host is empty");
  }
  if (port < 0 || port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("the port must be from 0 to 65535, and is ", port));
  }
  if (max_body_bytes == 0) {
    return absl::InvalidArgumentError("the largest body must not be 0 bytes");
  }
  if (max_open_requests == 0 || max_open_flushes == 0 ||
      uint64_t{max_open_requests} + max_open_flushes >= http_threads) {
    return absl::InvalidArgumentError(
        absl::StrCat("open requests (", max_open_requests, ") and flushes (",
                     max_open_flushes,
                     ") must be at least 1 each and together fewer than HTTP "
                     "threads (",
                     http_threads, ")"));
  }
  return absl::OkStatus();
}

struct Server::Impl {
  Impl(Config config_in, const Clock* clock, Logger logger_in)
      : config(std::move(config_in)),
        logger(logger_in),
        access({.api_key = config.api_key,
                .admin_from_anywhere = config.admin_from_anywhere,
                .listen_host = config.host,
                .allowed_hosts = config.allowed_hosts}),
        service(config, clock, logger_in),
        admin(&service, config.flush_timeout),
        models(&service),
        openai(&service),
        responses(&service),
        anthropic(&service) {}

  void SetUp();
  void Protect();
  void AnswerHttpErrors();
  // Before a body is read: who asks, and are we ready?
  Handled Admit(const httplib::Request& request, httplib::Response& response);
  // The method that a path wants, or nothing when there is no such path.
  std::string MethodOf(std::string_view path) const;
  void FillError(const httplib::Request& request, httplib::Response& response);
  void Serve();

  const Config config;
  const Logger logger;
  const AccessRules access;
  Service service;
  AdminEndpoints admin;
  ModelEndpoints models;
  OpenAiEndpoints openai;
  ResponsesEndpoints responses;
  AnthropicEndpoints anthropic;
  // Of all families; written by SetUp().
  Routes routes;
  httplib::Server http;
  // errno of bind() or listen(); the library keeps only that it failed.
  std::atomic<int> bind_errno{0};
  std::atomic<int> port{0};
  std::thread thread;
};

void Server::Impl::SetUp() {
  // Without SO_REUSEPORT, which would let two servers share a port in silence.
  http.set_socket_options([](socket_t socket) {
    httplib::set_socket_opt(socket, SOL_SOCKET, SO_REUSEADDR, 1);
  });
  http.set_payload_max_length(config.max_body_bytes);
  http.set_read_timeout(kReadTimeout);
  http.set_write_timeout(kWriteTimeout);
  http.new_task_queue = [this]() -> httplib::TaskQueue* {
    return new httplib::ThreadPool(config.http_threads, config.http_threads,
                                   kMaxQueuedConnections);
  };
  http.set_error_logger(
      [this](const httplib::Error& error, const httplib::Request*) {
        if (error == httplib::Error::BindIPAddress ||
            error == httplib::Error::Listen) {
          bind_errno.store(errno);
        }
      });
  http.set_logger([this](const httplib::Request& request,
                         const httplib::Response& response) {
    logger->debug("{} {} {}: {}", request.remote_addr, Loggable(request.method),
                  Loggable(request.path), response.status);
  });
  Protect();
  AnswerHttpErrors();
  for (Routes family : {admin.routes(), models.routes(), openai.routes(),
                        responses.routes(), anthropic.routes()}) {
    for (Route& route : family) {
      if (route.method == "GET") {
        http.Get(route.path, route.handler);
      } else {
        http.Post(route.path, route.handler);
      }
      routes.push_back(std::move(route));
    }
  }
}

std::string Server::Impl::MethodOf(std::string_view path) const {
  for (const Route& route : routes) {
    if (path == route.path) {
      return route.method;
    }
  }
  return "";
}

void Server::Impl::Protect() {
  http.set_pre_routing_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        return Admit(request, response);
      });
}

Handled Server::Impl::Admit(const httplib::Request& request,
                            httplib::Response& response) {
  const std::string authorization = request.get_header_value("Authorization");
  const std::string x_api_key = request.get_header_value("X-Api-Key");
  const std::string host = request.get_header_value("Host");
  const std::string origin = request.get_header_value("Origin");
  AccessRules::Asker asker = {.path = request.path,
                              .remote_address = request.remote_addr,
                              .authorization = authorization,
                              .x_api_key = x_api_key};
  if (request.has_header("Host")) {
    asker.host = host;
  }
  if (request.has_header("Origin")) {
    asker.origin = origin;
  }
  asker.forwarded =
      std::any_of(std::begin(kProxyHeaders), std::end(kProxyHeaders),
                  [&](const char* name) { return request.has_header(name); });
  switch (access.Check(asker)) {
    case Access::kAllowed:
      break;
    case Access::kWrongKey:
      response.set_header("WWW-Authenticate", "Bearer");
      SetError(request, response,
               HttpError(401,
                         "the API key is missing or wrong; send it as "
                         "'Authorization: Bearer KEY'"));
      return Handled::Handled;
    case Access::kNotFromThere:
      SetError(request, response,
               HttpError(403,
                         "without an API key, /admin/ answers "
                         "only requests from this machine"));
      return Handled::Handled;
    case Access::kWrongHost:
      SetError(request, response,
               HttpError(403,
                         "without an API key, the header Host must be this "
                         "machine: localhost, a loopback address, or a name "
                         "given by --host or --allow-host"));
      return Handled::Handled;
    case Access::kWrongOrigin:
      SetError(request, response,
               HttpError(403,
                         "without an API key, web pages of other machines may "
                         "not ask (the header Origin)"));
      return Handled::Handled;
  }
  if (!service.ready() && request.path != "/health") {
    absl::Status loading = absl::UnavailableError("the model is being loaded");
    ApiError error = RefusalError(loading);
    error.code = "loading";
    SetError(request, response, error);
    return Handled::Handled;
  }
  return Handled::Unhandled;
}

void Server::Impl::AnswerHttpErrors() {
  http.set_error_handler(
      [this](const httplib::Request& request, httplib::Response& response) {
        if (response.body.empty()) {
          FillError(request, response);
        }
        return Handled::Handled;
      });
  http.set_exception_handler([this](const httplib::Request& request,
                                    httplib::Response& response,
                                    std::exception_ptr exception) {
    std::string what = "unknown";
    try {
      std::rethrow_exception(exception);
    } catch (const std::bad_alloc&) {
      what = "out of memory";
    } catch (const std::exception& error) {
      what = error.what();
    } catch (...) {
    }
    logger->error("{} {}: {}", Loggable(request.method), Loggable(request.path),
                  Loggable(what));
    ApiError error = HttpError(500, "the server failed on this request");
    error.code = "internal";
    SetError(request, response, error);
  });
}

void Server::Impl::FillError(const httplib::Request& request,
                             httplib::Response& response) {
  switch (response.status) {
    case 404: {
      const std::string method = MethodOf(request.path);
      if (method.empty()) {
        SetError(request, response,
                 HttpError(404, "there is no such path here"));
      } else {
        response.set_header("Allow", method);
        SetError(
            request, response,
            HttpError(405, absl::StrCat("this path takes ", method, " only")));
      }
      return;
    }
    case 413:
      SetError(
          request, response,
          HttpError(413, absl::StrCat("the body is larger than ",
                                      FormatBytes(config.max_body_bytes))));
      return;
    default:
      SetError(request, response,
               HttpError(response.status,
                         absl::StrCat("HTTP: ", httplib::status_message(
                                                    response.status))));
  }
}

void Server::Impl::Serve() {
  try {
    if (!http.listen_after_bind()) {
      logger->error("the HTTP server ended: no more connections");
    }
  } catch (const std::exception& error) {
    logger->error("the HTTP server ended: {}", error.what());
  }
}

Server::Server(Config config, const Clock* clock, Logger logger)
    : impl_(std::make_unique<Impl>(std::move(config), clock,
                                   std::move(logger))) {}

Server::~Server() { Stop(std::chrono::milliseconds(0)); }

absl::Status Server::Start() {
  const Config& config = impl_->config;
  EW_RETURN_IF_ERROR(config.Validate());
  impl_->SetUp();
  int port = -1;
  if (config.port == 0) {
    port = impl_->http.bind_to_any_port(config.host);
  } else if (impl_->http.bind_to_port(config.host, config.port)) {
    port = config.port;
  }
  if (port < 0) {
    const int error = impl_->bind_errno.load();
    if (error == 0 || error == EADDRNOTAVAIL) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot listen on '", config.host,
                       "': it is no address of this machine"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("cannot listen on ", config.host, " port ", config.port,
                     ": ", std::system_category().message(error)));
  }
  impl_->port.store(port);
  impl_->thread = std::thread([impl = impl_.get()] { impl->Serve(); });
  impl_->http.wait_until_ready();
  return absl::OkStatus();
}

int Server::port() const { return impl_->port.load(); }

void Server::SetReady(engine::Engine* engine, const TextFront* text_front) {
  impl_->service.SetReady(engine, text_front);
}

void Server::BeginStop() { impl_->service.CloseGates(); }

void Server::Stop(std::chrono::milliseconds drain) {
  if (!impl_->thread.joinable()) {
    return;
  }
  BeginStop();
  if (!impl_->service.gate().WaitUntilEmpty(drain)) {
    impl_->logger->warn("{} open requests are cut off",
                        impl_->service.gate().open());
  }
  impl_->service.CutOff();
  impl_->http.stop();
  impl_->thread.join();
}

}  // namespace everwarm::server
