// The newest states of sessions: what a client with a session's id is likely to
// go on from.
//
// A session is a hint and owns nothing: requests find what they share whatever
// their ids are. Blocks of a session's states leave RAM after those of none
// (retention.h). A session that goes on in several directions, such as a
// request aside from the conversation itself, has several states.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_SESSIONS_H_
#define EVERWARM_CACHE_SESSIONS_H_

#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "cache/token_tree.h"

namespace everwarm::cache {

class Sessions {
 public:
  // The least recently used ones are forgotten beyond that many.
  Sessions(TokenTree& tree, size_t max_sessions)
      : tree_(tree), max_sessions_(max_sessions) {}
  Sessions(const Sessions&) = delete;
  Sessions& operator=(const Sessions&) = delete;

  // The session has come to the end of this node. It replaces the states that
  // it goes on from.
  void Advance(const std::string& id, Node* end);
  // Its states are like any other. Nothing is deleted. False: no such session.
  bool Close(const std::string& id);

  size_t size() const { return sessions_.size(); }

 private:
  struct Session {
    // Newest first; their nodes are pinned, and count it on their whole path.
    std::vector<Node*> ends;
    std::list<std::string>::iterator place;
  };
  void Hold(Node* end);
  void LetGo(Node* end);

  TokenTree& tree_;
  const size_t max_sessions_;
  absl::flat_hash_map<std::string, Session> sessions_;
  // Least recently used first.
  std::list<std::string> order_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_SESSIONS_H_
