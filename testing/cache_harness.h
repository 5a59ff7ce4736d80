// A cache over a made-up tier, driven the way the engine drives it, with KV
// bytes that say where they belong (kv_contents.h).
#ifndef EVERWARM_TESTING_CACHE_HARNESS_H_
#define EVERWARM_TESTING_CACHE_HARNESS_H_

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/kv_cache.h"
#include "testing/fake_clock.h"
#include "testing/fake_tier.h"
#include "testing/kv_contents.h"

namespace everwarm::cache {

struct HarnessOptions {
  uint64_t ram_target_bytes = uint64_t{1} << 30;
  uint64_t ram_hard_cap_bytes = uint64_t{1} << 30;
  std::chrono::milliseconds demote_idle{0};
};

// Threads: one.
class CacheHarness {
 public:
  explicit CacheHarness(CacheLayout layout, HarnessOptions options = {})
      : layout_(std::move(layout)),
        contents_(layout_),
        options_(options),
        pool_(Geometries(layout_)),
        tier_(&pool_) {
    tier_.set_verifier([this](const BlockIdentity& identity,
                              const std::vector<std::byte>& packed) {
      return contents_.Verify(identity, packed);
    });
    Start();
  }

  KvCache& cache() { return *cache_; }
  FakeTier& tier() { return tier_; }
  FakeClock& clock() { return clock_; }
  BlockPool& pool() { return pool_; }
  const CacheLayout& layout() const { return layout_; }

  // A new process over the same disk. All sequences must be gone.
  void Restart() {
    cache_.reset();
    tier_.Restart();
    Start();
    cache_->Adopt(tier_.Scan());
  }
  // The same without taking over what the disk has.
  void Start() {
    KvCache::Config config;
    config.layout = layout_;
    config.ram_target_bytes = options_.ram_target_bytes;
    config.ram_hard_cap_bytes = options_.ram_hard_cap_bytes;
    config.demote_idle = options_.demote_idle;
    cache_ = std::make_unique<KvCache>(config, &pool_, &tier_, &clock_,
                                       NullLogger());
  }
  void Stop() { cache_.reset(); }
  void set_options(HarnessOptions options) { options_ = options; }

  std::unique_ptr<Sequence> Take(const Tokens& prompt,
                                 const std::string& name_space = "") {
    return cache_->Take(prompt, name_space);
  }
  // Takes and lets all reads succeed.
  std::unique_ptr<Sequence> TakeReady(const Tokens& prompt,
                                      const std::string& name_space = "") {
    auto sequence = Take(prompt, name_space);
    while (!sequence->ready() && tier_.CompleteLoads() > 0) {
      cache_->Poll();
    }
    return sequence;
  }
  // Computes `tokens`: reserves, writes KV, appends.
  absl::Status Compute(Sequence& sequence, const Tokens& tokens,
                       const std::string& name_space = "") {
    const absl::Status status =
        cache_->Reserve(sequence, static_cast<TokenPos>(tokens.size()));
    if (status.ok()) {
      Write(sequence, tokens, name_space);
      cache_->Append(sequence, tokens);
    }
    return status;
  }
  // Takes the prompt, computes the rest of it and publishes.
  std::unique_ptr<Sequence> Generate(const Tokens& prompt,
                                     const std::string& name_space = "") {
    auto sequence = TakeReady(prompt, name_space);
    const Tokens rest(prompt.begin() + sequence->length(), prompt.end());
    if (!Compute(*sequence, rest, name_space).ok()) {
      return nullptr;
    }
    cache_->Publish(*sequence);
    return sequence;
  }
  // Lets writes succeed until nothing is queued.
  void StoreAll() {
    do {
      cache_->Poll();
    } while (tier_.CompleteStores() > 0);
  }

  // The bytes of tokens at sequence.length() on, as a kernel writes them.
  void Write(const Sequence& sequence, const Tokens& tokens,
             const std::string& name_space = "") {
    contents_.Write(sequence, tokens, Root(name_space));
  }
  // As KvContents::Check().
  std::string Check(const Sequence& sequence,
                    const std::string& name_space = "") {
    return contents_.Check(sequence, Root(name_space));
  }

  NodeId Root(const std::string& name_space) const {
    return RootId(Fingerprint{}, name_space);
  }

 private:
  const CacheLayout layout_;
  KvContents contents_;
  HarnessOptions options_;
  BlockPool pool_;
  FakeTier tier_;
  FakeClock clock_;
  std::unique_ptr<KvCache> cache_;
};

}  // namespace everwarm::cache

#endif  // EVERWARM_TESTING_CACHE_HARNESS_H_
