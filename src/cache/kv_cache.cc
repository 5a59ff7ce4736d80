#include "cache/kv_cache.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <variant>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cache/adoption.h"
#include "cache/durability.h"
#include "cache/flush_tracker.h"
#include "cache/loads.h"
#include "cache/parts.h"
#include "cache/publication.h"
#include "cache/resume.h"
#include "cache/retention.h"
#include "cache/sequence_state.h"
#include "cache/sessions.h"
#include "cache/stores.h"
#include "cache/taking.h"
#include "cache/tier_copies.h"
#include "cache/token_tree.h"

namespace everwarm::cache {
namespace {

// The whole tree is walked for the longest durable prefix, so stats() does not
// do it more often than this; flush reports are always exact.
constexpr std::chrono::seconds kLongestPrefixAge{1};
// Sessions whose newest states are known.
constexpr size_t kMaxSessions = 1024;

// Of a sequence's first `spans` blocks.
uint64_t SpanBytes(const LayerGroup& group, uint64_t spans) {
  const uint64_t first = std::min<uint64_t>(spans, group.geometry.first_spans);
  return first * group.geometry.first.slot_bytes() +
         (spans - first) * group.geometry.rest.slot_bytes();
}

absl::Status ValidateGroup(const LayerGroup& group, uint32_t block_tokens) {
  const BySpan<BlockGeometry>& geometry = group.geometry;
  const bool states = group.kind == GroupKind::kRecurrent;
  if (geometry.first_spans > 0 && (states || group.window > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "group ", group.name, ": only what sees the whole context has first ",
        "spans of its own, not a window and not states"));
  }
  if (states) {
    if (!geometry.rest.is_state() || geometry.rest.token_bytes() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "group ", group.name, ": its states are of ",
          geometry.rest.block_tokens(), " times ", geometry.rest.token_bytes(),
          " bytes, not of one whole memory"));
    }
    return absl::OkStatus();
  }
  for (const BlockGeometry* blocks :
       {&geometry.rest,
        geometry.first_spans > 0 ? &geometry.first : &geometry.rest}) {
    if (blocks->block_tokens() != block_tokens || blocks->token_bytes() == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "group ", group.name, ": its blocks have ", blocks->block_tokens(),
          " tokens of ", blocks->token_bytes(), " bytes, the layout's have ",
          block_tokens, " tokens"));
    }
  }
  if (group.kind == GroupKind::kWindow && group.window == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", group.name, ": a window of 0 tokens"));
  }
  return absl::OkStatus();
}

}  // namespace

Sequence::Sequence(std::unique_ptr<State> state) : state_(std::move(state)) {}
Sequence::~Sequence() = default;

bool Sequence::ready() const { return state_->sequence.waiting == nullptr; }
TokenPos Sequence::length() const {
  return static_cast<TokenPos>(state_->sequence.tokens.size());
}
absl::Span<const TokenId> Sequence::tokens() const {
  return state_->sequence.tokens;
}
const Reuse& Sequence::reuse() const { return state_->sequence.reuse; }
absl::Span<std::byte* const> Sequence::blocks(GroupIndex group) const {
  return state_->sequence.tables[group].slots();
}

absl::Status KvCache::Config::Validate() const {
  const uint32_t tokens = layout.block_tokens;
  if (tokens < 16 || tokens > 256 || (tokens & (tokens - 1)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "block_tokens is ", tokens, ", not a power of two from 16 to 256"));
  }
  if (std::all_of(layout.groups.begin(), layout.groups.end(),
                  [](const LayerGroup& group) {
                    return group.kind == GroupKind::kRecurrent;
                  })) {
    return absl::InvalidArgumentError("a layout without groups of blocks");
  }
  for (const LayerGroup& group : layout.groups) {
    EW_RETURN_IF_ERROR(ValidateGroup(group, tokens));
  }
  if (ram_hard_cap_bytes < ram_target_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the hard cap of ", ram_hard_cap_bytes,
                     " bytes is below the target of ", ram_target_bytes));
  }
  if (store_retry.count() < 0) {
    return absl::InvalidArgumentError("store_retry is negative");
  }
  if (read_patience.count() < 0) {
    return absl::InvalidArgumentError("read_patience is negative");
  }
  if (demote_idle.count() < 0) {
    return absl::InvalidArgumentError("demote_idle is negative");
  }
  return absl::OkStatus();
}

struct KvCache::Impl final : SequenceOwner {
  Impl(Config c, Parts p)
      : config(std::move(c)),
        parts(std::move(p)),
        tree(parts.layout.block_tokens, parts.layout.groups.size()),
        copies(parts, tree),
        adoption(parts, tree, copies),
        flushes(tree),
        stores(parts, {config.store_retry}, tree, copies, adoption, flushes),
        retention(parts,
                  {config.ram_target_bytes, config.ram_hard_cap_bytes,
                   config.demote_idle},
                  tree, stores, flushes),
        loads(parts, tree),
        taking(parts, tree, copies, loads, retention),
        sessions(tree, kMaxSessions),
        publication(tree, copies, retention, stores, sessions) {}

  ~Impl() override {
    for (SequenceState* sequence : open) {
      taking.Abandon(*sequence);
      sequence->owner = nullptr;
    }
  }

  std::unique_ptr<Sequence> Open(const NodeId& root,
                                 absl::Span<const TokenId> prompt,
                                 Purpose purpose) {
    auto state = std::make_unique<Sequence::State>(parts.layout, this);
    SequenceState& sequence = state->sequence;
    open.insert(&sequence);
    sequence.root = root;
    taking.Begin(sequence, prompt, purpose);
    return std::unique_ptr<Sequence>(new Sequence(std::move(state)));
  }
  void Closed(SequenceState& sequence) override {
    taking.Abandon(sequence);
    open.erase(&sequence);
    retention.NoteChange();
  }

  void Handle(StoredEvent& event) {
    stores.OnStored(event.key);
    retention.NoteChange();
  }
  void Handle(StoreFailedEvent& event) {
    stores.OnFailed(event.key, event.status);
    retention.NoteChange();
  }
  void Handle(LoadedEvent& event) { taking.OnLoaded(event.key, event.block); }
  void Handle(LoadFailedEvent& event) {
    // RAM may have the beginning of what cannot be read.
    if (Residency* const residency = copies.Drop(event.key);
        residency != nullptr) {
      stores.MarkDirty(*residency);
    }
    taking.OnLoadFailed(event.key, event.status);
  }
  void Handle(DroppedEvent& event) {
    adoption.Forget(event.key);
    // A RAM copy stays. What the tier had no room for is not written again.
    if (Residency* const residency = copies.Drop(event.key);
        residency != nullptr) {
      if (event.reason == DropReason::kLost) {
        stores.MarkDirty(*residency);
      }
      tree.Prune(residency->node);
      retention.NoteChange();
    }
  }

  TokenPos StartOf(const SequenceState::Need& need) const {
    return need.span * parts.layout.block_tokens;
  }
  const BlockGeometry& GeometryOf(const SequenceState::Need& need) const {
    return parts.pool->geometry(need.group, StartOf(need));
  }

  // Blocks that live sequences have shares of, each counted once.
  uint64_t LiveBytes() const {
    absl::flat_hash_set<const Block*> seen;
    uint64_t bytes = 0;
    for (const SequenceState* sequence : open) {
      for (const BlockTable& table : sequence->tables) {
        for (size_t span = table.released; span < table.size(); ++span) {
          const Block* const block = table[span].get();
          if (block != nullptr && seen.insert(block).second) {
            bytes += block->geometry().slot_bytes();
          }
        }
      }
    }
    return bytes;
  }

  TokenPos LongestPrefix() {
    if (longest_version != copies.version()) {
      longest_version = copies.version();
      longest = LongestDurablePrefix(tree, parts.layout);
      longest_at = parts.clock->Now();
    }
    return longest;
  }

  FlushReport Report(uint64_t ticket) {
    FlushReport report = flushes.Report(ticket, *parts.pool);
    report.no_tier = !parts.tier_enabled;
    report.entries = copies.size();
    report.longest_durable_prefix = LongestPrefix();
    return report;
  }

  const Config config;
  const Parts parts;
  TokenTree tree;
  TierCopies copies;
  Adoption adoption;
  FlushTracker flushes;
  Stores stores;
  Retention retention;
  Loads loads;
  Taking taking;
  Sessions sessions;
  Publication publication;
  absl::flat_hash_set<SequenceState*> open;
  uint64_t tail_copies = 0;
  uint64_t state_copies = 0;
  TokenPos longest = 0;
  uint64_t longest_version = 0;
  Clock::Monotonic longest_at{};
};

KvCache::KvCache(Config config, BlockPool* pool, Tier* tier, const Clock* clock,
                 Logger logger) {
  Parts parts{config.layout,        pool, tier, clock, std::move(logger),
              tier->stats().enabled};
  impl_ = std::make_unique<Impl>(std::move(config), std::move(parts));
}

KvCache::~KvCache() = default;

const CacheLayout& KvCache::layout() const { return impl_->config.layout; }

void KvCache::Adopt(std::vector<TierEntry> entries) {
  impl_->adoption.Adopt(std::move(entries));
}

std::unique_ptr<Sequence> KvCache::Take(absl::Span<const TokenId> prompt,
                                        std::string_view name_space) {
  return impl_->Open(RootId(impl_->config.fingerprint, name_space), prompt,
                     Purpose::kRequest);
}

std::unique_ptr<Sequence> KvCache::Preload(const NodeId& root,
                                           absl::Span<const TokenId> tokens) {
  return impl_->Open(root, tokens, Purpose::kPreload);
}

void KvCache::SetSession(Sequence& handle, std::string_view name) {
  if (!name.empty()) {
    handle.state_->sequence.session = SessionIdOf(name);
  }
}

bool KvCache::CloseSession(std::string_view name) {
  return impl_->sessions.Close(SessionIdOf(name));
}

void KvCache::KeepSessions(SessionKeeper* keeper,
                           std::vector<SessionEntry> known) {
  impl_->sessions.KeepIn(
      keeper, std::move(known), [this](const NodeId& id) -> Node* {
        for (size_t g = 0; g < impl_->parts.layout.groups.size(); ++g) {
          const Residency* const residency =
              impl_->copies.Find({id, static_cast<GroupIndex>(g)});
          if (residency != nullptr) {
            return residency->node;
          }
        }
        return nullptr;
      });
}

absl::Status KvCache::Reserve(Sequence& handle, TokenPos count) {
  SequenceState& sequence = handle.state_->sequence;
  const std::vector<SequenceState::Need> needs = sequence.Needs(count);
  size_t bytes = 0;
  uint64_t copied_tails = 0;
  uint64_t copied_states = 0;
  for (const SequenceState::Need& need : needs) {
    const BlockGeometry& geometry = impl_->GeometryOf(need);
    bytes += geometry.slot_bytes();
    if (need.copy_tokens > 0) {
      ++(geometry.is_state() ? copied_states : copied_tails);
    }
  }
  impl_->retention.MakeRoom(bytes);
  std::vector<BlockRef> slots;
  slots.reserve(needs.size());
  for (const SequenceState::Need& need : needs) {
    EW_ASSIGN_OR_RETURN(BlockRef slot, impl_->parts.pool->Allocate(
                                           need.group, impl_->StartOf(need)));
    slots.push_back(std::move(slot));
  }
  sequence.Apply(needs, std::move(slots), count);
  impl_->tail_copies += copied_tails;
  impl_->state_copies += copied_states;
  return absl::OkStatus();
}

bool KvCache::HasRoom(const Sequence& handle, TokenPos count) const {
  const std::vector<SequenceState::Need> needs =
      handle.state_->sequence.Needs(count);
  if (needs.empty()) {
    return true;
  }
  uint64_t bytes = 0;
  for (const SequenceState::Need& need : needs) {
    bytes += impl_->GeometryOf(need).slot_bytes();
  }
  // Cached blocks make way where that is not enough already.
  return impl_->parts.pool->used_bytes() + bytes <= live_limit_bytes() ||
         impl_->LiveBytes() + bytes <= live_limit_bytes();
}

uint64_t KvCache::SequenceBytes(TokenPos length, TokenPos step_tokens) const {
  const uint32_t block_tokens = impl_->parts.layout.block_tokens;
  uint64_t bytes = 0;
  for (const LayerGroup& group : impl_->parts.layout.groups) {
    if (group.kind == GroupKind::kRecurrent) {
      // Its own, and the published one that it is copied from.
      bytes += 2 * group.geometry.rest.slot_bytes();
      continue;
    }
    uint64_t spans = (uint64_t{length} + block_tokens - 1) / block_tokens;
    if (group.kind == GroupKind::kWindow) {
      // What is kept, the step's own and two ends of blocks.
      spans = std::min<uint64_t>(spans, BlocksBehind(group, block_tokens) +
                                            step_tokens / block_tokens + 2);
    }
    bytes += SpanBytes(group, spans);
  }
  return bytes;
}

uint64_t KvCache::SharedBytes(TokenPos common) const {
  uint64_t bytes = 0;
  for (const LayerGroup& group : impl_->parts.layout.groups) {
    if (group.kind == GroupKind::kFull || group.kind == GroupKind::kLatent) {
      bytes += SpanBytes(group, common / impl_->parts.layout.block_tokens);
    }
  }
  return bytes;
}

uint64_t KvCache::live_limit_bytes() const {
  const uint64_t target = impl_->config.ram_target_bytes;
  return target + (hard_cap_bytes() - target) / 4 * 3;
}

uint64_t KvCache::hard_cap_bytes() const {
  return impl_->config.ram_hard_cap_bytes;
}

void KvCache::Append(Sequence& handle, absl::Span<const TokenId> tokens) {
  handle.state_->sequence.Append(tokens);
}

void KvCache::Publish(Sequence& handle, StateUse states) {
  impl_->publication.Publish(handle.state_->sequence, states);
  impl_->stores.Pump();
}

void KvCache::Poll() {
  for (TierEvent& event : impl_->parts.tier->TakeEvents()) {
    std::visit([this](auto& what) { impl_->Handle(what); }, event);
    impl_->publication.NoteChange();
  }
  if (impl_->loads.Stalled(impl_->config.read_patience)) {
    impl_->taking.GiveUpReads();
  }
  impl_->publication.ThinOneMore();
  impl_->stores.QueueDue();
  impl_->stores.Pump();
  impl_->retention.MakeRoom(0);
  impl_->retention.DemoteIdle();
}

uint64_t KvCache::BeginFlush() {
  const uint64_t ticket = impl_->flushes.Begin();
  impl_->stores.QueueAll(ticket);
  impl_->stores.Pump();
  return ticket;
}

std::optional<FlushReport> KvCache::FlushOutcome(uint64_t ticket) {
  if (!impl_->flushes.known(ticket) || !impl_->flushes.settled(ticket)) {
    return std::nullopt;
  }
  FlushReport report = impl_->Report(ticket);
  impl_->flushes.Forget(ticket);
  return report;
}

FlushReport KvCache::FlushNow(uint64_t ticket) { return impl_->Report(ticket); }

void KvCache::ForgetFlush(uint64_t ticket) { impl_->flushes.Forget(ticket); }

uint64_t KvCache::publications() const {
  return impl_->publication.counters().publications;
}

void KvCache::WriteNewestFirst() {
  impl_->stores.QueueFailed();
  impl_->stores.TakeBack();
  impl_->retention.QueueNewestFirst();
  impl_->stores.Pump();
}

PrefixDurability KvCache::DurabilityOf(absl::Span<const TokenId> tokens,
                                       std::string_view name_space) const {
  return cache::DurabilityOf(impl_->tree, impl_->parts.layout,
                             RootId(impl_->config.fingerprint, name_space),
                             tokens, impl_->parts.clock->Now());
}

void KvCache::DemoteAll() { impl_->retention.DemoteAll(); }

CacheStats KvCache::stats() const {
  Impl& impl = *impl_;
  if (impl.parts.clock->Now() - impl.longest_at >= kLongestPrefixAge) {
    impl.LongestPrefix();
  }
  CacheStats stats;
  stats.ram_used_bytes = impl.parts.pool->used_bytes();
  for (const LayerGroup& group : impl.parts.layout.groups) {
    const auto index = static_cast<GroupIndex>(stats.groups.size());
    stats.groups.push_back({group.name, impl.parts.pool->used_bytes(index)});
  }
  stats.ram_mapped_bytes = impl.parts.pool->mapped_bytes();
  stats.ram_target_bytes = impl.config.ram_target_bytes;
  stats.ram_hard_cap_bytes = impl.config.ram_hard_cap_bytes;
  stats.sessions = impl.sessions.size();
  stats.nodes = impl.tree.num_nodes();
  stats.cached_blocks_in_ram = impl.retention.size();
  stats.cached_states_in_ram = impl.retention.states();
  stats.dirty_blocks = impl.stores.size();
  const Taking::Counters& taken = impl.taking.counters();
  stats.takes = taken.takes;
  stats.hits = taken.hits;
  stats.tokens_asked = taken.tokens_asked;
  stats.tokens_from_ram = taken.tokens_from_ram;
  stats.tokens_from_tier = taken.tokens_from_tier;
  stats.preloaded_tokens = taken.preloaded_tokens;
  stats.takes_given_up = taken.given_up;
  stats.demoted_blocks = impl.retention.counters().demoted;
  stats.lost_blocks = impl.retention.counters().lost;
  stats.tail_copies = impl.tail_copies;
  stats.state_copies = impl.state_copies;
  stats.published_states = impl.publication.counters().states;
  stats.thinned_states = impl.publication.counters().thinned_states;
  stats.longest_durable_prefix = impl.longest;
  stats.durable_tokens = impl.copies.tokens();
  return stats;
}

}  // namespace everwarm::cache
