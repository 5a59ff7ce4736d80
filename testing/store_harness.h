// A BlockStore on a simulated disk with executors that the test turns by hand,
// and blocks whose contents follow from their keys.
//
// Threads: one.
// Link:    ew_store, ew_sim_disk.
#ifndef EVERWARM_TESTING_STORE_HARNESS_H_
#define EVERWARM_TESTING_STORE_HARNESS_H_

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cache/block_pool.h"
#include "cache/tier.h"
#include "store/block_store.h"
#include "store/session_file.h"
#include "testing/fake_clock.h"
#include "testing/manual_executor.h"
#include "testing/sim_disk.h"

namespace everwarm::store {

// Four groups: one whose slot ends in padding, one of a single page, states,
// and one whose first block is in another codec than the rest.
inline std::vector<BySpan<GroupScheme>> SmallGroups() {
  return {GroupScheme{"f16", BlockGeometry(2, 16, {{2, 64}, {2, 96}})},
          GroupScheme{"q8", BlockGeometry(1, 16, {{1, 32}})},
          GroupScheme{"state", BlockGeometry(2, 1, {{1, 96}, {1, 5000}})},
          {1,
           {"f16", BlockGeometry(2, 16, {{2, 200}, {2, 200}})},
           {"q4", BlockGeometry(2, 16, {{2, 50}, {2, 10}, {2, 50}, {2, 10}})}}};
}
inline constexpr GroupIndex kStates = 2;
inline constexpr GroupIndex kMixed = 3;

inline std::vector<BySpan<BlockGeometry>> GeometriesOf(
    const std::vector<BySpan<GroupScheme>>& groups) {
  std::vector<BySpan<BlockGeometry>> geometries;
  for (const BySpan<GroupScheme>& group : groups) {
    geometries.push_back(
        {group.first_spans, group.first.geometry, group.rest.geometry});
  }
  return geometries;
}

inline Fingerprint TestFingerprint(uint8_t number = 1) {
  Fingerprint fingerprint;
  fingerprint.digest.fill(number);
  return fingerprint;
}

// `tokens` tokens cut into blocks of 16; the last may be a tail. Chains of
// different seeds share nothing but the root.
inline std::vector<cache::BlockIdentity> Chain(uint32_t seed, TokenPos tokens,
                                               const Fingerprint& fingerprint,
                                               GroupIndex group = 0) {
  constexpr TokenPos kBlock = 16;
  const NodeId root = RootId(fingerprint, "");
  NodeId parent = root;
  std::vector<cache::BlockIdentity> chain;
  for (TokenPos start = 0; start < tokens; start += kBlock) {
    cache::BlockIdentity identity;
    for (TokenPos i = start; i < std::min(start + kBlock, tokens); ++i) {
      identity.tokens.push_back(static_cast<TokenId>(seed * 10000 + i));
    }
    identity.parent = parent;
    identity.root = root;
    identity.start = start;
    identity.key = {ChildId(parent, identity.tokens), group};
    parent = identity.key.node;
    chain.push_back(std::move(identity));
  }
  return chain;
}

// A state behind the first `tokens` tokens of the block's span.
inline cache::BlockIdentity StateIn(cache::BlockIdentity identity,
                                    size_t tokens) {
  identity.tokens.resize(tokens);
  identity.key = {ChildId(identity.parent, identity.tokens), kStates};
  return identity;
}

// What the block's tokens hold, packed.
inline std::vector<std::byte> ContentsOf(const cache::BlockIdentity& identity,
                                         const BlockGeometry& geometry) {
  uint32_t seed = 0;
  std::memcpy(&seed, identity.key.node.digest.data(), sizeof(seed));
  std::mt19937 random(seed + identity.key.group);
  std::vector<std::byte> bytes(
      geometry.PayloadBytes(static_cast<uint32_t>(identity.tokens.size())));
  for (std::byte& byte : bytes) {
    byte = static_cast<std::byte>(random());
  }
  return bytes;
}

// That the session came to the end of the chain.
inline cache::SessionRecord RecordOf(
    std::string_view session, const std::vector<cache::BlockIdentity>& chain) {
  cache::SessionRecord record;
  record.session = cache::SessionIdOf(session);
  record.root = chain[0].root;
  for (const cache::BlockIdentity& identity : chain) {
    record.path.push_back(identity.key.node);
  }
  return record;
}

class StoreHarness {
 public:
  StoreHarness() : pool(GeometriesOf(SmallGroups())) {
    options.dir = "/cache";
    options.fingerprint = TestFingerprint();
    options.groups = SmallGroups();
    options.min_free_bytes = 0;
  }
  ~StoreHarness() { store.reset(); }

  absl::Status Open() {
    store.reset();
    absl::StatusOr<OpenedStore> opened = BlockStore::Open(
        options, {&env, &clock, &writers, &readers, logger, &scrubbers});
    if (!opened.ok()) {
      return opened.status();
    }
    store = std::move(opened->store);
    entries = std::move(opened->entries);
    sessions = std::move(opened->sessions);
    return absl::OkStatus();
  }

  const BlockGeometry& GeometryOf(const cache::BlockIdentity& identity) const {
    return pool.geometry(identity.key.group, identity.start);
  }

  // A block with the contents that go with the identity; 0xEE behind them.
  cache::BlockRef MakeBlock(const cache::BlockIdentity& identity) {
    const BlockGeometry& geometry = GeometryOf(identity);
    cache::BlockRef block = *pool.Allocate(identity.key.group, identity.start);
    std::memset(block->data(), 0xEE, geometry.slot_bytes());
    geometry.Unpack(ContentsOf(identity, geometry).data(),
                    static_cast<uint32_t>(identity.tokens.size()),
                    block->data());
    block->set_filled(static_cast<uint32_t>(identity.tokens.size()));
    return block;
  }

  absl::Status Store(const cache::BlockIdentity& identity) {
    return store->Store({identity, MakeBlock(identity)});
  }
  // Stores all, and turns the writers until nothing is left.
  void StoreAll(const std::vector<cache::BlockIdentity>& blocks) {
    for (const cache::BlockIdentity& identity : blocks) {
      store->Store({identity, MakeBlock(identity)}).IgnoreError();
    }
    writers.RunAll();
  }

  void Load(const cache::BlockIdentity& identity) {
    cache::BlockRef block = *pool.Allocate(identity.key.group, identity.start);
    std::memset(block->data(), 0xDD, GeometryOf(identity).slot_bytes());
    store->Load({identity, std::move(block)});
  }
  // Loads, and says how it went: OK only if every byte is right. Other events
  // are dropped.
  absl::Status LoadAndCheck(const cache::BlockIdentity& identity) {
    Load(identity);
    readers.RunAll();
    absl::Status result = absl::InternalError("no event");
    for (const cache::TierEvent& event : store->TakeEvents()) {
      if (const auto* loaded = std::get_if<cache::LoadedEvent>(&event);
          loaded != nullptr && loaded->key == identity.key) {
        result = IsRight(loaded->block, identity)
                     ? absl::OkStatus()
                     : absl::InternalError("wrong bytes were announced");
      }
      if (const auto* failed = std::get_if<cache::LoadFailedEvent>(&event);
          failed != nullptr && failed->key == identity.key) {
        result = failed->status;
      }
    }
    return result;
  }
  bool IsRight(const cache::BlockRef& block,
               const cache::BlockIdentity& identity) const {
    const BlockGeometry& geometry = GeometryOf(identity);
    const std::vector<std::byte> wanted = ContentsOf(identity, geometry);
    std::vector<std::byte> found(wanted.size());
    geometry.Pack(block->data(), static_cast<uint32_t>(identity.tokens.size()),
                  found.data());
    return found == wanted;
  }

  template <typename Event>
  static std::vector<Event> Only(const std::vector<cache::TierEvent>& events) {
    std::vector<Event> result;
    for (const cache::TierEvent& event : events) {
      if (const auto* wanted = std::get_if<Event>(&event)) {
        result.push_back(*wanted);
      }
    }
    return result;
  }

  std::string PathOf(const cache::SessionRecord& record) const {
    return options.dir + "/" + options.fingerprint.hex() + "/" +
           SessionFileName(record.id());
  }
  std::string PathOf(const cache::BlockIdentity& identity) const {
    return options.dir + "/" + options.fingerprint.hex() + "/" +
           BlockFileName(identity.key);
  }
  bool HasTempFiles() const {
    for (const std::string& path : env.Paths()) {
      if (path.find("/tmp-") != std::string::npos) {
        return true;
      }
    }
    return false;
  }

  FakeClock clock;
  SimDisk env{&clock};
  ManualExecutor writers;
  ManualExecutor readers;
  ManualExecutor scrubbers;
  Logger logger = NullLogger();
  cache::BlockPool pool;
  StoreOptions options;
  std::unique_ptr<BlockStore> store;
  std::vector<cache::TierEntry> entries;
  std::vector<cache::SessionEntry> sessions;
};

}  // namespace everwarm::store

#endif  // EVERWARM_TESTING_STORE_HARNESS_H_
