#include "server/response_store.h"

#include <utility>

namespace everwarm::server {
namespace {

size_t BytesOf(const ResponseStore::Messages& messages) {
  size_t bytes = 0;
  for (const models::ChatMessage& message : messages) {
    bytes += sizeof(message) + message.role.size() + message.content.size() +
             message.reasoning.size() + message.tool_name.size() +
             message.tool_call_id.size();
    for (const models::ToolCall& call : message.tool_calls) {
      bytes += sizeof(call) + call.id.size() + call.name.size() +
               call.arguments.size();
    }
  }
  return bytes;
}

}  // namespace

void ResponseStore::Put(const std::string& id, const std::string& name_space,
                        Messages messages) {
  Entry entry{id, name_space, nullptr,
              BytesOf(messages) + id.size() + name_space.size()};
  entry.messages = std::make_shared<const Messages>(std::move(messages));
  MutexLock lock(mutex_);
  bytes_ += entry.bytes;
  entries_.push_front(std::move(entry));
  by_id_[id] = entries_.begin();
  Evict();
}

std::optional<ResponseStore::Messages> ResponseStore::Find(
    const std::string& id, const std::string& name_space) {
  std::shared_ptr<const Messages> messages;
  {
    MutexLock lock(mutex_);
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || found->second->name_space != name_space) {
      return std::nullopt;
    }
    entries_.splice(entries_.begin(), entries_, found->second);
    messages = found->second->messages;
  }
  return *messages;
}

size_t ResponseStore::entries() const {
  MutexLock lock(mutex_);
  return entries_.size();
}

size_t ResponseStore::bytes() const {
  MutexLock lock(mutex_);
  return bytes_;
}

void ResponseStore::Evict() {
  while (!entries_.empty() && (entries_.size() > limits_.max_entries ||
                               bytes_ > limits_.max_bytes)) {
    bytes_ -= entries_.back().bytes;
    by_id_.erase(entries_.back().id);
    entries_.pop_back();
  }
}

}  // namespace everwarm::server
