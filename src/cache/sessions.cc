#include "cache/sessions.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace everwarm::cache {
namespace {

// Directions in which a session can have gone on.
constexpr size_t kMaxStates = 4;

bool IsOnPath(const Node* node, const Node* end) {
  while (end != nullptr && end != node) {
    end = end->parent;
  }
  return end == node;
}

// The farthest node of the path that is there; null if none is.
Node* FarthestOf(const std::vector<NodeId>& path,
                 absl::FunctionRef<Node*(const NodeId&)> find) {
  for (auto id = path.rbegin(); id != path.rend(); ++id) {
    if (Node* const node = find(*id); node != nullptr) {
      return node;
    }
  }
  return nullptr;
}

}  // namespace

void Sessions::KeepIn(SessionKeeper* keeper, std::vector<SessionEntry> known,
                      absl::FunctionRef<Node*(const NodeId&)> find) {
  keeper_ = keeper;
  std::stable_sort(known.begin(), known.end(),
                   [](const SessionEntry& a, const SessionEntry& b) {
                     return a.last_used > b.last_used;
                   });
  absl::flat_hash_map<SessionId, Clock::Wall> closed_at;
  for (const SessionEntry& entry : known) {
    if (entry.record.closed) {
      closed_at.try_emplace(entry.record.session, entry.last_used);
    }
  }
  for (const SessionEntry& entry : known) {
    const auto closed = closed_at.find(entry.record.session);
    if (closed == closed_at.end() || closed->second < entry.last_used) {
      Adopt(entry, find);
    }
  }
}

// From the most recently used on.
void Sessions::Adopt(const SessionEntry& entry,
                     absl::FunctionRef<Node*(const NodeId&)> find) {
  const SessionRecord& record = entry.record;
  Node* const end = FarthestOf(record.path, find);
  const auto known = sessions_.find(record.session);
  if (end == nullptr ||
      (known == sessions_.end() && sessions_.size() >= max_sessions_)) {
    return;
  }
  Session& session = sessions_[record.session];
  if (known == sessions_.end()) {
    session.place = order_.insert(order_.begin(), record.session);
  }
  const auto longer = std::find_if(
      session.states.begin(), session.states.end(),
      [&](const State& state) { return IsOnPath(end, state.end); });
  if (longer != session.states.end()) {
    // It was replaced, and the process ended before it was removed.
    longer->records.push_back(record.id());
  } else if (session.states.size() < kMaxStates) {
    Hold(end);
    session.states.push_back(
        {end, static_cast<uint32_t>(end->tokens.size()), {record.id()}});
  }
}

void Sessions::Advance(const SessionId& id, Node* end, uint32_t tokens) {
  const auto [found, added] = sessions_.try_emplace(id);
  Session& session = found->second;
  if (added) {
    session.place = order_.insert(order_.end(), id);
  } else {
    order_.splice(order_.end(), order_, session.place);
  }
  // First, so that nothing of the path is let go in between.
  Hold(end);
  State state{end, tokens, {}};
  std::erase_if(session.states, [&](const State& old) {
    const bool replaced = IsOnPath(old.end, end);
    if (replaced) {
      if (old.end == end) {
        state.tokens = std::max(state.tokens, old.tokens);
      }
      LetGo(old.end);
      state.records.insert(state.records.end(), old.records.begin(),
                           old.records.end());
    }
    return replaced;
  });
  SessionRecord record = RecordOf(id, state, false);
  const RecordId record_id = record.id();
  std::erase(state.records, record_id);
  keeper_->Keep(std::move(record), std::exchange(state.records, {record_id}));
  session.states.insert(session.states.begin(), std::move(state));
  if (session.states.size() > kMaxStates) {
    LetGo(session.states.back().end);
    session.states.pop_back();
  }
  if (sessions_.size() > max_sessions_) {
    // A copy: forgetting it destroys the list's.
    Forget(SessionId(order_.front()));
  }
}

bool Sessions::Close(const SessionId& id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    return false;
  }
  for (const State& state : found->second.states) {
    keeper_->Keep(RecordOf(id, state, true), state.records);
  }
  Forget(id);
  return true;
}

SessionRecord Sessions::RecordOf(const SessionId& id, const State& state,
                                 bool closed) const {
  SessionRecord record;
  record.session = id;
  record.root = *state.end->root->id;
  record.closed = closed;
  // Others may have gone on behind the session's tokens of the last node.
  uint32_t tokens = state.tokens;
  for (Node* node = state.end; node->parent != nullptr; node = node->parent) {
    record.path.push_back(tree_.Key(node, 0, tokens).node);
    tokens = tree_.block_tokens();
  }
  std::reverse(record.path.begin(), record.path.end());
  return record;
}

void Sessions::Forget(const SessionId& id) {
  const auto found = sessions_.find(id);
  const Session session = std::move(found->second);
  sessions_.erase(found);
  order_.erase(session.place);
  for (const State& state : session.states) {
    LetGo(state.end);
  }
}

void Sessions::Hold(Node* end) {
  tree_.Pin(end);
  for (Node* node = end; node != nullptr; node = node->parent) {
    ++node->sessions;
  }
}

void Sessions::LetGo(Node* end) {
  for (Node* node = end; node != nullptr; node = node->parent) {
    --node->sessions;
  }
  // May remove it.
  tree_.Unpin(end);
}

}  // namespace everwarm::cache
