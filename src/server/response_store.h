// Conversations that /v1/responses can go on with, by the id of their last
// response, for the life of the process.
//
// Threads: any.
// Bounds:  entries and bytes; the least recently used go first.
#ifndef EVERWARM_SERVER_RESPONSE_STORE_H_
#define EVERWARM_SERVER_RESPONSE_STORE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "models/chat_prompt.h"

namespace everwarm::server {

class ResponseStore {
 public:
  struct Limits {
    size_t max_entries = 1024;
    size_t max_bytes = size_t{64} << 20;
  };
  explicit ResponseStore(Limits limits) : limits_(limits) {}

  using Messages = std::vector<models::ChatMessage>;

  // Remembers a conversation up to and with this response. Only requests of the
  // same namespace find it.
  void Put(const std::string& id, const std::string& name_space,
           Messages messages);
  // Nothing when it is unknown, or not any more.
  std::optional<Messages> Find(const std::string& id,
                               const std::string& name_space);

  size_t entries() const;
  size_t bytes() const;

 private:
  struct Entry {
    std::string id;
    std::string name_space;
    std::shared_ptr<const Messages> messages;
    size_t bytes = 0;
  };
  void Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Limits limits_;
  mutable Mutex mutex_;
  // Most recently used first.
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> by_id_
      ABSL_GUARDED_BY(mutex_);
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace everwarm::server

#endif  // EVERWARM_SERVER_RESPONSE_STORE_H_
