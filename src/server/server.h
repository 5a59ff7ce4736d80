// The HTTP server: the OpenAI and Anthropic APIs, health, statistics and
// administration.
//
// It listens before the model is loaded, so that a client sees "loading" and
// not a refused connection: every path but /health answers 503 until
// SetReady().
//
// Threads:  Start(), SetReady() and Stop() from one thread; requests are served
//           by its own.
// Owns:     the listening socket and the HTTP workers. Engine and text front
// are
//           the caller's and outlive Stop().
// Blocks:   Stop() until every worker has left.
// Errors:   no request ends the server; a client's mistake is a 4xx in the
// API's
//           form, and never an empty 200.
// Not here: what a path answers (the files called ..._endpoints), inference
//           (engine/).
#ifndef EVERWARM_SERVER_SERVER_H_
#define EVERWARM_SERVER_SERVER_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "engine/engine.h"
#include "server/text_front.h"

namespace everwarm::server {

class Server {
 public:
  struct Config {
    std::string host = "127.0.0.1";
    // 0: any free one; port() says which.
    int port = 8080;
    // Empty: no key is asked for. Else everything but /health needs it, as
    // "Authorization: Bearer KEY" or "X-Api-Key: KEY".
    std::string api_key;
    // Without a key, /admin/ answers only this machine unless this is set.
    bool admin_from_anywhere = false;
    // Without a key, names beside `host` and localhost that requests may call
    // this machine by (access.h).
    std::vector<std::string> allowed_hosts;
    // What /v1/models and replies call the model; empty: the model's own name.
    std::string model_id;
    uint64_t max_body_bytes = 64 * kMiB;
    // Each connection takes one.
    uint32_t http_threads = 64;
    // Requests that run or wait for the engine; more are answered 429. Together
    // with flushes fewer than http_threads, so that /health always finds one.
    uint32_t max_open_requests = 48;
    // Flushes and drains, which have their own places: replies that take all of
    // the others must not keep anybody from making them durable.
    uint32_t max_open_flushes = 8;
    // Of a flush and of a drain.
    std::chrono::milliseconds flush_timeout{120000};
    // How long the end of a reply waits when the request says
    // "X-Everwarm-Wait-Durable: 1".
    std::chrono::milliseconds durable_wait{30000};

    absl::Status Validate() const;
  };

  // Requires: a valid config. The clock outlives the server.
  Server(Config config, const Clock* clock, Logger logger);
  // Stops at once.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens, and serves from then on.
  // Errors: kInvalidArgument, the host is no address of this machine;
  //         kFailedPrecondition, the port is busy or not ours to take.
  absl::Status Start();

  // The port in use. Requires: Start() was OK.
  int port() const;

  // Requests reach the engine from now on.
  void SetReady(engine::Engine* engine, const TextFront* text_front);

  // Refuses new requests from now on; /health says so. Open ones go on. Any
  // thread.
  void BeginStop();

  // As BeginStop(); lets open requests finish for `drain`, then cuts them off.
  // Idempotent. An engine that is stopped first makes them finish sooner.
  void Stop(std::chrono::milliseconds drain);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_SERVER_H_
