// What is kept of a session beyond the life of a process: to which node of the
// token tree it came. A preference on eviction, and what tells whose blocks are
// whose when a session is to be removed.
#ifndef EVERWARM_CACHE_SESSION_RECORD_H_
#define EVERWARM_CACHE_SESSION_RECORD_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"

namespace everwarm::cache {

// SHA-256 of what a client calls its session: the name itself is kept nowhere.
struct SessionId {
  Digest digest{};
  std::string hex() const { return ToHex(digest); }
  friend bool operator==(const SessionId&, const SessionId&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const SessionId& id) {
    return H::combine_contiguous(std::move(h), id.digest.data(),
                                 id.digest.size());
  }
};
SessionId SessionIdOf(std::string_view name);

// Names a record, and says all that can differ: session, last node, closed.
using RecordId = Digest;

// One of the directions in which a session went on.
struct SessionRecord {
  SessionId session;
  // Of the token tree: fingerprint and namespace.
  NodeId root;
  // Every node from the root's child to where the session came; not empty.
  std::vector<NodeId> path;
  // The session was closed here: no preference any more.
  bool closed = false;

  RecordId id() const;
};

// A record that a start-up scan found.
struct SessionEntry {
  SessionRecord record;
  Clock::Wall last_used;
};

// Keeps records, or does not: losing one loses a preference.
//
// Threads: calls from the engine thread; none blocks on a disk.
class SessionKeeper {
 public:
  virtual ~SessionKeeper() = default;

  // Queues the record to be made durable. Those that it replaces go when it is.
  virtual void Keep(SessionRecord record, std::vector<RecordId> replaces) = 0;
};

// Keeps nothing.
class NullSessionKeeper final : public SessionKeeper {
 public:
  void Keep(SessionRecord, std::vector<RecordId>) override {}
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_SESSION_RECORD_H_
