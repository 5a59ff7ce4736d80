#include "tests/torture/world.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "testing/resume_definition.h"

namespace everwarm::torture {
namespace {

using cache::BlockIdentity;
using store::BlockStore;
using store::OpenedStore;

Fingerprint OurFingerprint() {
  Fingerprint fingerprint;
  fingerprint.digest.fill(7);
  return fingerprint;
}

constexpr char kDir[] = "/var/cache";
// Of /var, which is not the store's.
constexpr uint64_t kSystemBytes = 4096;
// A cap that nothing here reaches.
constexpr uint64_t kNoCap = uint64_t{1} << 30;

uint64_t& KindOf(CrashCounts& counts, SimDisk::Unsynced unsynced) {
  switch (unsynced) {
    case SimDisk::Unsynced::kKept:
      break;
    case SimDisk::Unsynced::kDropped:
      return counts.dropped;
    case SimDisk::Unsynced::kTorn:
      return counts.torn;
    case SimDisk::Unsynced::kReordered:
      return counts.reordered;
  }
  return counts.kept;
}

bool GoesOnFrom(const Conversation& later, const Conversation& earlier) {
  return later.name_space == earlier.name_space &&
         later.tokens.size() > earlier.tokens.size() &&
         std::equal(earlier.tokens.begin(), earlier.tokens.end(),
                    later.tokens.begin());
}

bool IsSame(const Conversation& a, const Conversation& b) {
  return a.tokens == b.tokens && a.name_space == b.name_space &&
         a.passing == b.passing;
}

// Once each: flushes tell of the same ones again and again.
void AddOnce(std::vector<Conversation>& list, const Conversation& added) {
  if (std::none_of(list.begin(), list.end(), [&](const Conversation& known) {
        return IsSame(known, added);
      })) {
    list.push_back(added);
  }
}

}  // namespace

World::World(WorldOptions options, cache::BlockPool* pool, Counts* counts)
    : options_(std::move(options)),
      pool_(*pool),
      counts_(*counts),
      disk_(&clock_, options_.seed),
      contents_(options_.layout) {
  // The system's own directory; ours is below it.
  disk_.Put("/var", {}, store::FileKind::kDirectory);
  oracle_.set_disk_alive(
      [this] { return reads_may_fail_ || !disk_.crashed(); });
  oracle_.set_may_drop(
      [this] { return MayEvict() || reads_may_fail_ || disk_.crashed(); });
}

World::~World() { EndProcess(); }

std::string World::OwnDir() const {
  return absl::StrCat(kDir, "/", OurFingerprint().hex());
}

NodeId World::Root(const std::string& name_space) const {
  return RootId(OurFingerprint(), name_space);
}

store::StoreOptions World::MakeStoreOptions() const {
  store::StoreOptions options;
  options.dir = kDir;
  options.fingerprint = OurFingerprint();
  for (const cache::LayerGroup& group : options_.layout.groups) {
    const BySpan<BlockGeometry>& geometry = group.geometry;
    options.groups.push_back(
        {geometry.first_spans,
         {absl::StrCat("first-", group.name), geometry.first},
         {group.name, geometry.rest}});
  }
  options.max_bytes = options_.ssd_bytes;
  options.min_free_bytes = 0;
  options.max_queued_stores = options_.max_queued_stores;
  options.max_batch_blocks = options_.max_batch_blocks;
  // Everything there is, in a second.
  options.scrub_bytes_per_second = uint64_t{1} << 20;
  return options;
}

absl::StatusOr<OpenedStore> World::OpenStore() {
  return BlockStore::Open(
      MakeStoreOptions(),
      {&disk_, &clock_, &writers_, &readers_, options_.logger, &scrubbers_});
}

World::DiskBefore World::LookAtDisk() const {
  return {disk_.Paths(),
          disk_.used_bytes() - kSystemBytes > options_.ssd_bytes};
}

std::vector<BlockKey> World::GoneSince(const DiskBefore& before) const {
  std::vector<BlockKey> gone;
  const std::string own = OwnDir() + "/";
  for (const std::string& path : before.paths) {
    if (!absl::StartsWith(path, own) || disk_.Exists(path)) {
      continue;
    }
    if (const auto key = store::ParseBlockFileName(
            std::string_view(path).substr(own.size()))) {
      gone.push_back(*key);
    }
  }
  return gone;
}

bool World::MayEvict() const {
  return options_.ssd_bytes < kNoCap || little_space_;
}

void World::Open() {
  ++counts_.restarts;
  reads_may_fail_ = false;
  Audit();
  const DiskBefore before = LookAtDisk();
  auto opened = OpenStore();
  if (disk_.crashed()) {
    ForgiveUnseenEvictions(before);
  }
  if (!opened.ok()) {
    if (!disk_.crashed()) {
      Problem(absl::StrCat("cannot open: ", opened.status().ToString()));
    }
    return;
  }
  if (!disk_.crashed()) {
    const uint64_t evicted = opened->store->stats().evicted;
    CheckEntries(before, opened->entries, evicted);
    CheckSessions(opened->sessions, evicted);
    CheckDisk();
    for (const cache::TierEntry& entry : opened->entries) {
      oracle_.OnAdopted(entry.identity);
    }
  }
  disk_.ResetPeak();
  store_ = std::move(opened->store);
  tier_ = std::make_unique<SpyTier>(store_.get(), &oracle_);
  cache::KvCache::Config config;
  config.fingerprint = OurFingerprint();
  config.layout = options_.layout;
  config.ram_target_bytes = options_.ram_target_bytes;
  config.ram_hard_cap_bytes = options_.ram_hard_cap_bytes;
  cache_ = std::make_unique<cache::KvCache>(config, &pool_, tier_.get(),
                                            &clock_, options_.logger);
  cache_->Adopt(std::move(opened->entries));
  cache_->KeepSessions(store_.get(), std::move(opened->sessions));
}

void World::Audit() {
  const DiskBefore before = LookAtDisk();
  auto opened = OpenStore();
  if (disk_.crashed()) {
    ForgiveUnseenEvictions(before);
  }
  if (!opened.ok() || disk_.crashed()) {
    return;
  }
  const uint64_t evicted = opened->store->stats().evicted;
  counts_.evictions += evicted;
  CheckEntries(before, opened->entries, evicted);
  absl::flat_hash_map<BlockKey, const BlockIdentity*> asked;
  for (const cache::TierEntry& entry : opened->entries) {
    const BlockIdentity& identity = entry.identity;
    asked[identity.key] = &identity;
    opened->store->Load(
        {identity, *pool_.Allocate(identity.key.group, identity.start)});
  }
  readers_.RunAll();
  for (const cache::TierEvent& event : opened->store->TakeEvents()) {
    if (const auto* loaded = std::get_if<cache::LoadedEvent>(&event)) {
      const BlockIdentity& identity = *asked.at(loaded->key);
      const BlockGeometry& geometry = loaded->block->geometry();
      const auto tokens = static_cast<uint32_t>(identity.tokens.size());
      std::vector<std::byte> packed(geometry.PayloadBytes(tokens));
      geometry.Pack(loaded->block->data(), tokens, packed.data());
      ++counts_.blocks_read;
      if (!contents_.Verify(identity, packed)) {
        ++counts_.wrong_bytes;
        Problem("a stored block has wrong bytes and passes all checks");
      }
    } else if (const auto* failed = std::get_if<cache::LoadFailedEvent>(&event);
               failed != nullptr && !disk_.crashed() &&
               oracle_.durable().contains(failed->key)) {
      counts_.lost_tokens += asked.at(failed->key)->tokens.size();
      Problem(absl::StrCat("a durable block is damaged: ",
                           failed->status.ToString()));
      oracle_.Forgive(failed->key);
    }
  }
  // Sets aside what was found damaged.
  writers_.RunAll();
}

void World::CheckEntries(const DiskBefore& before,
                         const std::vector<cache::TierEntry>& entries,
                         uint64_t evicted) {
  absl::flat_hash_set<BlockKey> found;
  for (const cache::TierEntry& entry : entries) {
    found.insert(entry.identity.key);
  }
  std::vector<const BlockIdentity*> lost;
  for (const auto& [key, identity] : oracle_.durable()) {
    if (!found.contains(key)) {
      lost.push_back(&identity);
    }
  }
  if (lost.empty()) {
    return;
  }
  // What this start has evicted was there before and is not there now.
  std::vector<BlockKey> taken = GoneSince(before);
  std::erase_if(taken, [&](const BlockKey& key) {
    return !oracle_.durable().contains(key);
  });
  // Others may have been evicted too: other models' files, or ours that came
  // back with the power.
  if (taken.size() <= evicted) {
    std::erase_if(lost, [&](const BlockIdentity* identity) {
      return std::find(taken.begin(), taken.end(), identity->key) !=
             taken.end();
    });
    for (const BlockKey& key : taken) {
      oracle_.Forgive(key);
    }
  }
  for (const BlockIdentity* identity : lost) {
    counts_.lost_tokens += identity->tokens.size();
    Problem(absl::StrCat("a durable block at position ", identity->start,
                         " is gone; this start took ", taken.size(),
                         " such and evicted ", evicted));
    oracle_.Forgive(BlockKey(identity->key));
  }
}

void World::ForgiveUnseenEvictions(const DiskBefore& before) {
  if (!before.over_cap) {
    return;
  }
  for (const BlockKey& key : GoneSince(before)) {
    oracle_.Forgive(key);
  }
}

void World::CheckSessions(const std::vector<cache::SessionEntry>& found,
                          uint64_t evicted) {
  sessions_may_be_lost_ = sessions_may_be_lost_ || evicted > 0 ||
                          oracle_.forgives_any() || MayEvict();
  if (sessions_may_be_lost_) {
    return;
  }
  for (const std::string& name : durable_sessions_) {
    if (std::none_of(
            found.begin(), found.end(),
            [id = cache::SessionIdOf(name)](const cache::SessionEntry& entry) {
              return entry.record.session == id;
            })) {
      Problem("a durable session has no record");
    }
  }
}

void World::CheckDisk() {
  for (const std::string& path : disk_.Paths()) {
    if (absl::StrContains(path, "/tmp-")) {
      Problem("a dead process's file is left: " + path);
    }
  }
  const uint64_t used = disk_.used_bytes() - kSystemBytes;
  if (used > options_.ssd_bytes) {
    Problem(
        absl::StrCat(used, " bytes after the start, cap ", options_.ssd_bytes));
  }
}

void World::OpenSecondProcess() {
  ++counts_.second_processes;
  const std::vector<std::string> before = disk_.Paths();
  ManualExecutor executor;
  const auto second =
      BlockStore::Open(MakeStoreOptions(),
                       {&disk_, &clock_, &executor, &executor, NullLogger()});
  if (!absl::IsFailedPrecondition(second.status()) && !reads_may_fail_) {
    Problem("a second process was not refused: " + second.status().ToString());
  }
  if (disk_.Paths() != before) {
    Problem("a refused process has changed files");
  }
}

void World::Crash(SimDisk::Unsynced unsynced, uint64_t seed) {
  if (store_ != nullptr || disk_.crashed()) {
    ++KindOf(counts_.crashes, unsynced);
  } else {
    ++counts_.orderly_ends;
  }
  options_.logger->info("crash {} after {} calls", static_cast<int>(unsynced),
                        disk_.total_calls());
  EndProcess();
  disk_.Restart(unsynced, seed);
}

void World::Close() { EndProcess(); }

void World::EndProcess() {
  if (tier_ != nullptr) {
    // What was announced before the end was promised.
    tier_->TakeEvents();
    CheckEvents();
    counts_.evictions += store_->stats().evicted;
  }
  cache_.reset();
  tier_.reset();
  store_.reset();
  flushes_.clear();
  published_.clear();
  sessions_.clear();
  // They find nobody home.
  writers_.RunAll();
  readers_.RunAll();
  scrubbers_.RunAll();
}

std::unique_ptr<Sequence> World::Take(const Tokens& prompt,
                                      const std::string& name_space,
                                      const std::string& session) {
  std::unique_ptr<Sequence> sequence = cache_->Take(prompt, name_space);
  cache_->SetSession(*sequence, session);
  return sequence;
}

void World::Extend(Sequence& sequence, const Tokens& tokens,
                   const Tokens& thrown_away, const std::string& name_space) {
  const Tokens all = tokens + thrown_away;
  const absl::Status status =
      cache_->Reserve(sequence, static_cast<TokenPos>(all.size()));
  if (!status.ok()) {
    Problem("no slot: " + status.ToString());
    return;
  }
  contents_.Write(sequence, HasStates(options_.layout) ? tokens : all,
                  Root(name_space));
  cache_->Append(sequence, tokens);
}

void World::Publish(Sequence& sequence, const std::string& name_space,
                    cache::StateUse use) {
  cache_->Publish(sequence, use);
  const absl::Span<const TokenId> tokens = sequence.tokens();
  if (tokens.empty()) {
    return;
  }
  Conversation published{{tokens.begin(), tokens.end()}, name_space};
  published.passing =
      use == cache::StateUse::kPassing && HasStates(options_.layout);
  AddOnce(published_, published);
  AddOnce(ever_published_, published);
}

void World::Check(const Sequence& sequence, const std::string& name_space) {
  counts_.tokens_compared += sequence.length();
  const std::string wrong = contents_.Check(sequence, Root(name_space));
  if (!wrong.empty()) {
    ++counts_.wrong_bytes;
    Problem(
        absl::StrCat("a sequence of ", sequence.length(), " tokens: ", wrong));
  }
}

void World::Generate(const Tokens& prompt, const std::string& name_space,
                     const std::string& session) {
  const auto sequence = Take(prompt, name_space, session);
  Settle();
  if (!sequence->ready()) {
    Problem("a sequence waits for reads that have ended");
    return;
  }
  Check(*sequence, name_space);
  const Tokens rest(prompt.begin() + sequence->length(), prompt.end());
  Extend(*sequence, rest, {}, name_space);
  Publish(*sequence, name_space);
  if (!session.empty()) {
    sessions_.insert(session);
  }
  Settle();
}

void World::BeginFlush() {
  flushes_.push_back({cache_->BeginFlush(), published_, sessions_});
}

void World::EndFlushes() {
  std::erase_if(flushes_, [&](const RunningFlush& flush) {
    const std::optional<cache::FlushReport> report =
        cache_->FlushOutcome(flush.ticket);
    if (!report.has_value()) {
      return false;
    }
    ++counts_.flushes;
    if (!report->durable()) {
      return true;
    }
    const Oracle::Blocks claimed = oracle_.ClaimedBlocks();
    for (const Conversation& done : flush.before) {
      counts_.acknowledged_tokens += done.tokens.size();
      CheckClaim(done, claimed, "a flush called");
      AddOnce(acknowledged_, done);
    }
    durable_sessions_.insert(flush.sessions.begin(), flush.sessions.end());
    return true;
  });
}

TokenPos World::ResumePoint(const Conversation& conversation,
                            const Oracle::Blocks& blocks) const {
  const NodeId root = Root(conversation.name_space);
  const auto wanted = static_cast<TokenPos>(conversation.tokens.size());
  TokenPos point = cache::ResumeByDefinition(
      options_.layout, blocks, conversation.tokens + Tokens{1}, root);
  // What is kept once may be on the way the next time, after it had to go.
  if (std::none_of(ever_published_.begin(), ever_published_.end(),
                   [&](const Conversation& known) {
                     return known.passing &&
                            known.name_space == conversation.name_space &&
                            known.tokens == conversation.tokens;
                   })) {
    return point;
  }
  for (const Conversation& later : ever_published_) {
    if (point < wanted && GoesOnFrom(later, conversation)) {
      point = std::max(
          point, cache::ResumeByDefinition(options_.layout, blocks,
                                           later.tokens + Tokens{1}, root));
    }
  }
  return std::min(point, wanted);
}

void World::CheckClaim(const Conversation& conversation,
                       const Oracle::Blocks& claimed, const std::string& who) {
  const TokenPos durable = ResumePoint(conversation, claimed);
  if (durable < conversation.tokens.size()) {
    counts_.lost_tokens += conversation.tokens.size() - durable;
    Problem(
        absl::StrCat(who, " ", conversation.tokens.size(),
                     conversation.passing ? " tokens on the way" : " tokens",
                     " durable, of which ", durable, " are"));
  }
}

bool World::Flush() {
  BeginFlush();
  const uint64_t ticket = flushes_.back().ticket;
  Settle();
  const bool durable = cache_->FlushNow(ticket).durable();
  EndFlushes();
  if (!flushes_.empty()) {
    Problem("a flush has not ended although nothing is left to do");
  }
  return durable;
}

void World::Poll() {
  cache_->Poll();
  CheckEvents();
  const uint64_t peak = disk_.peak_bytes() - kSystemBytes;
  if (peak > options_.ssd_bytes) {
    Problem(absl::StrCat(peak, " bytes were on the disk, cap ",
                         options_.ssd_bytes, ", counted ",
                         store_->stats().bytes));
    disk_.ResetPeak();
  }
}

void World::CheckEvents() {
  if (oracle_.TakeDroppedForNothing() > 0) {
    Problem("a good block was dropped although there is room");
  }
  for (const absl::Status& failed : oracle_.TakeFailedLoads()) {
    if (!reads_may_fail_) {
      Problem(absl::StrCat("a durable block could not be read: ",
                           failed.ToString()));
    }
  }
}

void World::Settle() {
  do {
    writers_.RunAll();
    readers_.RunAll();
    Poll();
  } while (writers_.size() + readers_.size() > 0);
}

void World::CheckRam() {
  // A search for something to drop is repeated after a while.
  clock_.Advance(std::chrono::milliseconds(50));
  Poll();
  const uint64_t limit = cache_->stats().dirty_blocks > 0
                             ? options_.ram_hard_cap_bytes
                             : options_.ram_target_bytes;
  if (pool_.used_bytes() > limit) {
    Problem(absl::StrCat(pool_.used_bytes(), " bytes of RAM, limit ", limit));
  }
}

void World::SetChances(const SimDisk::Chances& chances) {
  reads_may_fail_ = true;
  sessions_may_be_lost_ = true;
  FaultCounts& counts = counts_.faults;
  counts.read_error += chances.read_error > 0 ? 1 : 0;
  counts.short_read += chances.short_read > 0 ? 1 : 0;
  counts.flipped_read += chances.flipped_read > 0 ? 1 : 0;
  counts.write_error += chances.write_error > 0 ? 1 : 0;
  counts.no_space += chances.no_space > 0 ? 1 : 0;
  counts.sync_error += chances.sync_error > 0 ? 1 : 0;
  counts.name_error += chances.name_error > 0 ? 1 : 0;
  // The store makes room where the disk says that there is none.
  little_space_ = little_space_ || chances.no_space > 0;
  disk_.SetChances(chances);
}

void World::LeaveRoom(uint64_t bytes) {
  ++counts_.faults.little_space;
  little_space_ = true;
  sessions_may_be_lost_ = true;
  disk_.set_capacity(disk_.used_bytes() + bytes);
}

void World::Scrub(std::chrono::milliseconds time, size_t files) {
  const cache::TierStats before = store_->stats();
  clock_.Advance(time);
  store_->Tick();
  for (size_t i = 0; i < files && scrubbers_.RunOne(); ++i) {
  }
  const cache::TierStats after = store_->stats();
  counts_.scrubbed += after.scrubbed - before.scrubbed;
  counts_.scrub_finds += after.damaged - before.damaged;
}

bool World::Damage(uint64_t random) {
  if (cache_ != nullptr) {
    Poll();
  }
  std::vector<std::string> files;
  for (const std::string& path : disk_.Paths()) {
    if (absl::StartsWith(path, OwnDir() + "/") &&
        (absl::EndsWith(path, ".kv") || absl::EndsWith(path, ".session")) &&
        !disk_.Contents(path).empty()) {
      files.push_back(path);
    }
  }
  if (files.empty()) {
    return false;
  }
  sessions_may_be_lost_ = true;
  const std::string& path = files[random % files.size()];
  const std::string& other = files[random / 7 % files.size()];
  const uint64_t kind = random % 6;
  const auto forgive = [&](std::string_view touched) {
    if (const auto key =
            store::ParseBlockFileName(touched.substr(touched.rfind('/') + 1))) {
      oracle_.Forgive(*key);
    }
  };
  forgive(path);
  if (kind == 2) {
    forgive(other);
  }
  options_.logger->info("damage {} of {} and {}", kind, path, other);
  SimDisk::Bytes bytes = disk_.Contents(path);
  const uint64_t place = random / 64;
  switch (kind) {
    case 0:
      ++counts_.damages.cut;
      bytes.resize(place % bytes.size());
      disk_.Put(path, bytes);
      break;
    case 1:
      ++counts_.damages.flipped;
      disk_.FlipBit(path, place % bytes.size(), place % 8);
      break;
    case 2:
      ++counts_.damages.swapped;
      disk_.Put(path, disk_.Contents(other));
      disk_.Put(other, bytes);
      break;
    case 3:
      ++counts_.damages.removed;
      disk_.Unlink(path).IgnoreError();
      break;
    case 4:
      ++counts_.damages.zeroed;
      std::fill(bytes.begin() + place % bytes.size(), bytes.end(),
                std::byte{0});
      disk_.Put(path, bytes);
      break;
    default:
      ++counts_.damages.replaced;
      disk_.Put(path, {}, store::FileKind::kOther);
  }
  disk_.ResetPeak();
  return true;
}

void World::CheckConversations(const std::vector<Conversation>& conversations) {
  const Oracle::Blocks claimed = oracle_.ClaimedBlocks();
  for (const Conversation& wanted : conversations) {
    CheckClaim(wanted, claimed, "flushes had called");
  }
  for (const Conversation& wanted : conversations) {
    const Tokens prompt = wanted.tokens + Tokens{1};
    // Before what a read that fails takes away.
    const TokenPos expected =
        cache::ResumeByDefinition(options_.layout, oracle_.DurableBlocks(),
                                  prompt, Root(wanted.name_space));
    const auto sequence = Take(prompt, wanted.name_space);
    Settle();
    if (!sequence->ready()) {
      Problem("a sequence waits for reads that have ended");
      return;
    }
    Check(*sequence, wanted.name_space);
    if (sequence->length() < expected) {
      counts_.lost_tokens += expected - sequence->length();
      Problem(absl::StrCat("of ", expected, " durable tokens ",
                           sequence->length(), " are found"));
    }
  }
}

cache::BlockPool& SharedPool(const cache::CacheLayout& layout) {
  struct Entry {
    std::vector<BySpan<BlockGeometry>> geometries;
    std::unique_ptr<cache::BlockPool> pool;
  };
  static thread_local std::vector<Entry> pools;
  std::vector<BySpan<BlockGeometry>> wanted = cache::Geometries(layout);
  for (const Entry& entry : pools) {
    if (entry.geometries == wanted) {
      return *entry.pool;
    }
  }
  pools.push_back({wanted, std::make_unique<cache::BlockPool>(wanted)});
  return *pools.back().pool;
}

}  // namespace everwarm::torture
