// The latest conversations are read into RAM at a start, before anybody asks.
//
// The latest one first, a piece at a time, while there is nothing else to do:
// whoever asks for something else meanwhile waits for one piece at most, and
// whoever asks for the same goes on from the reads that run.
//
// Threads: the engine thread.
#ifndef EVERWARM_CACHE_PRELOAD_H_
#define EVERWARM_CACHE_PRELOAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "cache/kv_cache.h"
#include "cache/latest_conversations.h"

namespace everwarm::cache {

class Preload {
 public:
  struct Options {
    // Reads until what is in RAM comes to this.
    uint64_t most_bytes = 0;
    // A piece: some 25 ms of a fast disk, and enough for reads side by side.
    uint64_t piece_bytes = uint64_t{64} << 20;
  };
  // `latest` as LatestConversations() gives them. The cache outlives it.
  Preload(KvCache* cache, std::vector<Conversation> latest, Options options);

  // There is nothing else to do: the next piece, unless one is still on its
  // way. False: all is done, and there is no call after that.
  bool Advance();
  // Somebody else needs the cache: what was read stays only while there is
  // room. Advance() goes on from there.
  void Interrupt() { sequence_.reset(); }

  // Conversations that are in RAM as far as the tier had them.
  size_t finished() const { return latest_.size() - next_; }

 private:
  // The next piece of the next conversation. False: there is no room for more.
  bool Begin();
  // Without reads: the latest conversation is the last to leave RAM.
  void TouchFinished();

  KvCache* const cache_;
  const std::vector<Conversation> latest_;
  const Options options_;
  // The conversation after the next one; they go from the last to the first.
  size_t next_;
  // Of the next conversation, tokens that were asked for.
  size_t length_ = 0;
  std::unique_ptr<Sequence> sequence_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_CACHE_PRELOAD_H_
