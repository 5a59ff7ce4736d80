// The newest states of sessions: what a client with a session's id is likely to
// go on from.
//
// A session is a hint and owns nothing: requests find what they share whatever
// their ids are. Blocks of a session's states leave RAM after those of none
// (retention.h). A session that goes on in several directions, such as a
// request aside from the conversation itself, has several states. Each is also
// given to a keeper, so that a restart finds it.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_SESSIONS_H_
#define EVERWARM_CACHE_SESSIONS_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "cache/session_record.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

class Sessions {
 public:
  // The least recently used ones are forgotten beyond that many.
  Sessions(TokenTree& tree, size_t max_sessions)
      : tree_(tree), max_sessions_(max_sessions) {}
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // Where states are kept from now on, and those that were kept before. `find`
  // gives the node of an id, or null. Once, before the first Advance().
  void KeepIn(SessionKeeper* keeper, std::vector<SessionEntry> known,
              absl::FunctionRef<Node*(const NodeId&)> find);

  // The session has come to the end of this node's first `tokens` tokens. It
  // replaces the states that it goes on from.
  void Advance(const SessionId& id, Node* end, uint32_t tokens);
  // Its states are like any other. Nothing is deleted. False: no such session.
  bool Close(const SessionId& id);

  size_t size() const { return sessions_.size(); }

 private:
  struct State {
    // Pinned; counts the session on its whole path.
    Node* end = nullptr;
    uint32_t tokens = 0;
    // Records that say so, or said so of what it went on from.
    std::vector<RecordId> records;
  };
  struct Session {
    // Newest first.
    std::vector<State> states;
    std::list<SessionId>::iterator place;
  };
  void Adopt(const SessionEntry& entry,
             absl::FunctionRef<Node*(const NodeId&)> find);
  SessionRecord RecordOf(const SessionId& id, const State& state,
                         bool closed) const;
  void Forget(const SessionId& id);
  void Hold(Node* end);
  void LetGo(Node* end);

  TokenTree& tree_;
  const size_t max_sessions_;
  NullSessionKeeper nowhere_;
  SessionKeeper* keeper_ = &nowhere_;
  absl::flat_hash_map<SessionId, Session> sessions_;
  // Least recently used first.
  std::list<SessionId> order_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_SESSIONS_H_
