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

}  // namespace

void Sessions::Advance(const std::string& id, Node* end) {
  const auto [found, added] = sessions_.try_emplace(id);
  Session& session = found->second;
  if (added) {
    session.place = order_.insert(order_.end(), id);
  } else {
    order_.splice(order_.end(), order_, session.place);
  }
  // First, so that nothing of the path is let go in between.
  Hold(end);
  std::erase_if(session.ends, [&](Node* old) {
    const bool replaced = IsOnPath(old, end);
    if (replaced) {
      LetGo(old);
    }
    return replaced;
  });
  session.ends.insert(session.ends.begin(), end);
  if (session.ends.size() > kMaxStates) {
    LetGo(session.ends.back());
    session.ends.pop_back();
  }
  if (sessions_.size() > max_sessions_) {
    // A copy: closing it destroys the list's.
    Close(std::string(order_.front()));
  }
}

bool Sessions::Close(const std::string& id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    return false;
  }
  const Session session = std::move(found->second);
  sessions_.erase(found);
  order_.erase(session.place);
  for (Node* end : session.ends) {
    LetGo(end);
  }
  return true;
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
