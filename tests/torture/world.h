// One machine: a simulated disk, and on it one process after the other with the
// product's cache over the product's store. An oracle, which no crash reaches,
// keeps what was promised and compares.
//
// Whatever is not as promised is a problem: a sentence in problems().
//
// Threads: one; executors and time are the test's to move.
#ifndef EVERWARM_TESTS_TORTURE_WORLD_H_
#define EVERWARM_TESTS_TORTURE_WORLD_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "cache/kv_cache.h"
#include "store/block_store.h"
#include "testing/fake_clock.h"
#include "testing/kv_contents.h"
#include "testing/manual_executor.h"
#include "testing/sim_disk.h"
#include "tests/torture/counts.h"
#include "tests/torture/oracle.h"

namespace everwarm::torture {

using cache::operator+;
using cache::Sequence;
using cache::Tokens;
using store::SimDisk;

struct WorldOptions {
  cache::CacheLayout layout;
  uint64_t ram_target_bytes = uint64_t{1} << 30;
  uint64_t ram_hard_cap_bytes = uint64_t{1} << 30;
  uint64_t ssd_bytes = uint64_t{1} << 30;
  size_t max_queued_stores = 1024;
  size_t max_batch_blocks = 32;
  uint64_t seed = 0;
  // What the store and the cache log.
  Logger logger = NullLogger();
};

// Tokens that were published, and where.
struct Conversation {
  Tokens tokens;
  std::string name_space;
  // Only on the way: a state that is there stands until one further on does.
  bool passing = false;
};

class World {
 public:
  // The pool has the layout's geometries and may be used again by the next
  // world, which is faster.
  World(WorldOptions options, cache::BlockPool* pool, Counts* counts);
  ~World();

  // A process starts: locks, scans, adopts. What the disk must have is there,
  // what it has is right, the cap is kept and no temporary file is left, or
  // there are problems.
  void Open();
  // Starts while the other one runs: must be refused and change nothing.
  void OpenSecondProcess();
  // An end without any warning, or in the middle of a call that failed.
  void Crash(SimDisk::Unsynced unsynced, uint64_t seed);
  // The process drops all it has and ends. Nothing waits for the disk.
  void Close();
  bool running() const { return cache_ != nullptr; }

  // Takes what is known of the prompt; checked once it is ready. Of a session
  // if it is named.
  std::unique_ptr<Sequence> Take(const Tokens& prompt,
                                 const std::string& name_space,
                                 const std::string& session = "");
  // Computes `tokens` behind the sequence. Of more that are reserved and, where
  // there are no states, written, nothing is kept.
  void Extend(Sequence& sequence, const Tokens& tokens,
              const Tokens& thrown_away, const std::string& name_space);
  void Publish(Sequence& sequence, const std::string& name_space,
               cache::StateUse use = cache::StateUse::kKept);
  // All bytes of a ready sequence.
  void Check(const Sequence& sequence, const std::string& name_space);
  // Take, compute the rest, publish; everything runs to its end.
  void Generate(const Tokens& prompt, const std::string& name_space = "",
                const std::string& session = "");

  void BeginFlush();
  // Of flushes that have begun; what they say is believed and kept.
  void EndFlushes();
  // Both, with all that is in between. True: everything is durable.
  bool Flush();

  void RunWriter() { writers_.RunOne(); }
  void RunReader() { readers_.RunOne(); }
  void Poll();
  // Until nothing is left to do before time passes.
  void Settle();

  // Nobody holds a sequence: what is in RAM fits the target, or waits for the
  // disk and fits the hard cap.
  void CheckRam();

  // A file of the store: cut, changed, swapped, gone. False when there is none.
  bool Damage(uint64_t random);
  // Time passes, and files are read again in the background: as many as the
  // time is enough for, and no more than that many.
  void Scrub(std::chrono::milliseconds time, size_t files);
  // Errors that are injected now excuse reads that fail.
  void SetChances(const SimDisk::Chances& chances);
  // The disk has room for so much more.
  void LeaveRoom(uint64_t bytes);

  // After a crash: each conversation that was called durable still is, but for
  // what is gone for a reason, and is found as far as it is there, and right.
  void CheckConversations(const std::vector<Conversation>& conversations);

  cache::KvCache& cache() { return *cache_; }
  SimDisk& disk() { return disk_; }
  FakeClock& clock() { return clock_; }
  WorldOptions& options() { return options_; }
  // All conversations that a flush has called durable, in this life or before.
  const std::vector<Conversation>& acknowledged() const {
    return acknowledged_;
  }
  const std::vector<std::string>& problems() const { return problems_; }
  void Problem(std::string what) { problems_.push_back(std::move(what)); }
  std::string OwnDir() const;

 private:
  struct RunningFlush {
    uint64_t ticket = 0;
    std::vector<Conversation> before;
    absl::flat_hash_set<std::string> sessions;
  };

  // What a start began with.
  struct DiskBefore {
    std::vector<std::string> paths;
    bool over_cap = false;
  };

  NodeId Root(const std::string& name_space) const;
  DiskBefore LookAtDisk() const;
  // Blocks whose files are not there any more.
  std::vector<BlockKey> GoneSince(const DiskBefore& before) const;
  // Whether the cap, or the disk's end, may be reached.
  bool MayEvict() const;
  // How far this conversation, or for a passing state one that goes on from it,
  // is there.
  TokenPos ResumePoint(const Conversation& conversation,
                       const Oracle::Blocks& blocks) const;
  // Problem: what was called durable is not, and nothing explains it.
  void CheckClaim(const Conversation& conversation,
                  const Oracle::Blocks& claimed, const std::string& who);
  store::StoreOptions MakeStoreOptions() const;
  absl::StatusOr<store::OpenedStore> OpenStore();
  // Opens once, reads everything that is found, and closes.
  void Audit();
  // What must be there is, but for what this start has evicted.
  void CheckEntries(const DiskBefore& before,
                    const std::vector<cache::TierEntry>& entries,
                    uint64_t evicted);
  // The disk stopped in the middle of a start, which had evicted perhaps.
  void ForgiveUnseenEvictions(const DiskBefore& before);
  // Those that must have a record: a flush came after them, and neither a
  // fault nor the cap has touched anything.
  void CheckSessions(const std::vector<cache::SessionEntry>& found,
                     uint64_t evicted);
  void CheckDisk();
  // What the store has said of good blocks.
  void CheckEvents();
  void EndProcess();

  WorldOptions options_;
  cache::BlockPool& pool_;
  Counts& counts_;
  FakeClock clock_;
  SimDisk disk_;
  ManualExecutor writers_;
  ManualExecutor readers_;
  ManualExecutor scrubbers_;
  cache::KvContents contents_;
  Oracle oracle_;
  // True while reads may fail, or files are not as the store left them.
  bool reads_may_fail_ = false;
  // The disk itself has been full, or will be.
  bool little_space_ = false;
  // By this process; and by all.
  std::vector<Conversation> published_;
  std::vector<Conversation> ever_published_;
  // Their conversations are published; and durable, in this life or before.
  absl::flat_hash_set<std::string> sessions_;
  absl::flat_hash_set<std::string> durable_sessions_;
  // Something else than a crash went wrong, or there was little room.
  bool sessions_may_be_lost_ = false;
  std::vector<RunningFlush> flushes_;
  std::vector<Conversation> acknowledged_;
  std::vector<std::string> problems_;
  std::unique_ptr<store::BlockStore> store_;
  std::unique_ptr<SpyTier> tier_;
  std::unique_ptr<cache::KvCache> cache_;
};

// A pool for the layout, the same one for all worlds of a thread.
cache::BlockPool& SharedPool(const cache::CacheLayout& layout);

}  // namespace everwarm::torture

#endif  // EVERWARM_TESTS_TORTURE_WORLD_H_
