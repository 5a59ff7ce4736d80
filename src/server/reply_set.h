// The engine's replies to one HTTP request: one, or several choices that run at
// the same time.
//
// Threads: one at a time.
// Owns:    the replies; destroying this cancels them.
#ifndef EVERWARM_SERVER_REPLY_SET_H_
#define EVERWARM_SERVER_REPLY_SET_H_

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/api_error.h"

namespace everwarm::server {

class ReplySet {
 public:
  // All of them are taken by the engine, or none.
  // Errors: those of Engine::Submit().
  static absl::StatusOr<ReplySet> Submit(engine::Engine& engine,
                                         std::vector<engine::Request> requests);

  struct Event {
    size_t choice = 0;
    engine::ReplyEvent event;
  };
  // What comes next from any of them, or nothing when `timeout` passed.
  std::optional<Event> Next(std::chrono::milliseconds timeout);
  // Gives it back: it comes next again.
  void PutBack(Event event) { first_ = std::move(event); }

  size_t size() const { return replies_.size(); }
  // Every reply has ended.
  bool done() const { return running_ == 0 && !first_; }
  void CancelAll();

 private:
  explicit ReplySet(std::vector<std::unique_ptr<engine::Reply>> replies)
      : replies_(std::move(replies)),
        ended_(replies_.size(), false),
        running_(replies_.size()) {}
  std::optional<Event> NextOf(size_t choice, std::chrono::milliseconds timeout);

  std::vector<std::unique_ptr<engine::Reply>> replies_;
  std::vector<bool> ended_;
  size_t running_ = 0;
  // Whose turn it is to be asked first.
  size_t turn_ = 0;
  std::optional<Event> first_;
};

// One reply as a whole.
struct WholeChoice {
  std::string text;
  std::vector<engine::ChosenToken> tokens;
  engine::FinishedEvent finished;
};
struct ClientLeft {};

// Waits for the end of all. `client_gone` is asked about every 50 ms; when it
// says yes, all are cancelled at once.
std::variant<std::vector<WholeChoice>, ApiError, ClientLeft> CollectReplies(
    ReplySet& replies, const std::function<bool()>& client_gone);

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_REPLY_SET_H_
