// States of recurrent groups: found at exact positions, copied before they are
// gone on from, thinned, stored, lost and read back.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/kv_cache.h"
#include "gtest/gtest.h"
#include "testing/cache_harness.h"

namespace everwarm::cache {
namespace {

constexpr GroupIndex kState = 0;
constexpr uint64_t kSlot = 4096;

// What is known of these tokens and one more.
TokenPos Known(CacheHarness& h, const Tokens& tokens) {
  const auto sequence = h.TakeReady(tokens + Tokens{5000});
  EXPECT_EQ(h.Check(*sequence), "");
  EXPECT_EQ(sequence->reuse().cached, sequence->length());
  return sequence->length();
}

enum class Disk { kSlow, kFast };

// Computes `tokens` up to each of `stops`, publishing there. A fast disk has
// stored everything before the next stop.
std::unique_ptr<Sequence> Travel(CacheHarness& h, const Tokens& tokens,
                                 const std::vector<TokenPos>& stops,
                                 StateUse use, Disk disk = Disk::kSlow) {
  auto sequence = h.TakeReady(tokens);
  for (const TokenPos stop : stops) {
    const Tokens piece(tokens.begin() + sequence->length(),
                       tokens.begin() + stop);
    EXPECT_TRUE(h.Compute(*sequence, piece).ok());
    h.cache().Publish(*sequence, use);
    if (disk == Disk::kFast) {
      h.StoreAll();
    }
  }
  return sequence;
}

std::vector<TokenPos> StatesOnDisk(const CacheHarness& h, FakeTier& tier) {
  std::vector<TokenPos> positions;
  for (const auto& [key, entry] : tier.disk()) {
    if (h.layout().groups[key.group].kind == GroupKind::kRecurrent) {
      positions.push_back(entry.identity.start +
                          static_cast<TokenPos>(entry.identity.tokens.size()));
    }
  }
  std::sort(positions.begin(), positions.end());
  return positions;
}

TEST(StatesTest, ANewSequenceBeginsWithAStateOfZeros) {
  CacheHarness h(FullAndState());
  // Slots are used again: what they held must not show.
  h.Generate(Range(1, 20));
  const auto sequence = h.Take(Range(100, 5));
  ASSERT_TRUE(h.cache().Reserve(*sequence, 5).ok());
  ASSERT_EQ(sequence->blocks(kState).size(), 1);
  EXPECT_EQ(h.Check(*sequence), "");
}

TEST(StatesTest, AConversationGoesOnOnlyWhereItsStateIs) {
  CacheHarness h(FullAndState());
  Travel(h, Range(1, 60), {20, 60}, StateUse::kKept);
  EXPECT_EQ(Known(h, Range(1, 60)), 60);
  EXPECT_EQ(Known(h, Range(1, 59)), 20);
  EXPECT_EQ(Known(h, Range(1, 21)), 20);
  EXPECT_EQ(Known(h, Range(1, 20)), 20);
  EXPECT_EQ(Known(h, Range(1, 19)), 0);
}

TEST(StatesTest, WhatIsKnownBeyondTheLastStateIsNotCalledReuse) {
  CacheHarness h(FullAndState());
  Travel(h, Range(1, 60), {20}, StateUse::kKept);
  const auto sequence = Travel(h, Range(1, 60), {60}, StateUse::kNone);
  const auto next = h.Take(Range(1, 60) + Range(900, 3));
  EXPECT_EQ(next->reuse().matched, 60);
  EXPECT_EQ(next->reuse().cached, 20);
  EXPECT_EQ(next->reuse().ram, 20);
  EXPECT_EQ(next->length(), 20);
}

TEST(StatesTest, WhoeverGoesOnCopiesTheStateAndTheOthersKeepIt) {
  CacheHarness h(FullAndState());
  const auto first = h.Generate(Range(1, 20));
  EXPECT_EQ(h.cache().stats().state_copies, 0);
  const auto second = h.Take(Range(1, 20) + Range(300, 9));
  const auto third = h.Take(Range(1, 20) + Range(400, 9));
  EXPECT_EQ(second->length(), 20);
  EXPECT_TRUE(h.Compute(*first, Range(200, 9)).ok());
  EXPECT_TRUE(h.Compute(*second, Range(300, 9)).ok());
  EXPECT_TRUE(h.Compute(*third, Range(400, 9)).ok());
  EXPECT_EQ(h.cache().stats().state_copies, 3);
  // Each goes on in its own now.
  EXPECT_TRUE(h.Compute(*first, Range(209, 9)).ok());
  EXPECT_EQ(h.cache().stats().state_copies, 3);
  EXPECT_EQ(h.Check(*first), "");
  EXPECT_EQ(h.Check(*second), "");
  EXPECT_EQ(h.Check(*third), "");
  EXPECT_EQ(Known(h, Range(1, 20)), 20);
}

TEST(StatesTest, TheLastPublicationOfASequenceCopiesNothingAndTakesNoRoom) {
  CacheHarness h(FullAndState());
  auto sequence = h.TakeReady(Range(1, 20));
  ASSERT_TRUE(h.Compute(*sequence, Range(1, 20)).ok());
  const size_t before = h.pool().used_bytes();
  h.cache().Publish(*sequence);
  EXPECT_EQ(h.pool().used_bytes(), before);
  sequence.reset();
  EXPECT_EQ(h.pool().used_bytes(), before);
  EXPECT_EQ(h.cache().stats().state_copies, 0);
  EXPECT_EQ(h.cache().stats().cached_states_in_ram, 1);
}

TEST(StatesTest, AStateOfAStepThatFailedIsNotPublished) {
  CacheHarness h(FullAndState());
  auto sequence = h.Generate(Range(1, 20));
  ASSERT_TRUE(h.Compute(*sequence, Range(21, 5)).ok());
  ASSERT_TRUE(h.cache().Reserve(*sequence, 5).ok());
  h.Write(*sequence, Range(700, 3));
  h.cache().Publish(*sequence);
  sequence.reset();
  EXPECT_EQ(h.cache().stats().published_states, 1);
  EXPECT_EQ(Known(h, Range(1, 25)), 20);
  h.StoreAll();
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(StatesTest, AReserveThatFindsNoMemoryLeavesEveryGroupAsItWas) {
  CacheLayout layout = FullAndState();
  // More than any system gives.
  layout.groups.push_back({"huge", GroupKind::kRecurrent, 0,
                           BlockGeometry(1 << 20, 1, {{1, 1u << 31}})});
  CacheHarness h(layout);
  const auto sequence = h.Take(Range(1, 20));
  EXPECT_TRUE(absl::IsResourceExhausted(h.cache().Reserve(*sequence, 20)));
  EXPECT_EQ(sequence->blocks(kState)[0], nullptr);
  EXPECT_EQ(h.pool().used_bytes(), 0);
}

TEST(StatesTest, AStateIsFoundAmongManyThatBeginLikeItsOwn) {
  CacheHarness h(FullAndState());
  const Tokens shared = Range(1, 24);
  Travel(h, shared, {24}, StateUse::kKept);
  // Far more siblings than are compared for their blocks, on both sides.
  for (TokenId i = 0; i < 60; ++i) {
    Travel(h, shared + Tokens{1000 + i * 7, i}, {26}, StateUse::kNone);
  }
  EXPECT_EQ(Known(h, shared + Tokens{1211}), 24);
  EXPECT_EQ(h.cache().stats().published_states, 1);
  // And it is still the same one that a sequence publishes there again.
  Travel(h, shared + Tokens{1}, {24}, StateUse::kKept);
  EXPECT_EQ(h.cache().stats().published_states, 1);
}

TEST(StatesTest, StatesSurviveARestartAndAreReadFromTheTier) {
  CacheHarness h(FullAndState());
  Travel(h, Range(1, 60), {20, 48, 60}, StateUse::kKept);
  h.StoreAll();
  EXPECT_EQ(StatesOnDisk(h, h.tier()), (std::vector<TokenPos>{20, 48, 60}));
  h.Restart();
  const auto sequence = h.TakeReady(Range(1, 55));
  EXPECT_EQ(sequence->length(), 48);
  EXPECT_EQ(sequence->reuse().tier, 48);
  EXPECT_EQ(h.Check(*sequence), "");
  EXPECT_EQ(Known(h, Range(1, 60)), 60);
  h.clock().Advance(std::chrono::seconds(2));
  EXPECT_EQ(h.cache().stats().longest_durable_prefix, 60);
}

TEST(StatesTest, ALostOrDamagedStateMeansTheNextShorterOne) {
  CacheHarness h(FullAndState());
  Travel(h, Range(1, 60), {20, 48, 60}, StateUse::kKept);
  h.StoreAll();
  h.Restart();
  const auto sequence = h.Take(Range(1, 70));
  size_t reads = 0;
  while (!sequence->ready()) {
    // Every state but that at 20 is damaged.
    const LoadRequest& next = h.tier().loads().front();
    const bool damaged = next.identity.key.group == kState &&
                         next.identity.start + next.identity.tokens.size() > 20;
    if (damaged) {
      h.tier().FailLoads(absl::DataLossError("damaged"), 1);
    } else {
      h.tier().CompleteLoads(1);
    }
    h.cache().Poll();
    ASSERT_LT(++reads, 20);
  }
  EXPECT_EQ(sequence->length(), 20);
  EXPECT_EQ(h.Check(*sequence), "");
  EXPECT_EQ(Known(h, Range(1, 60)), 20);
}

TEST(StatesTest, AStateWhoseBlocksAreGoneIsNoPlaceToGoOnFrom) {
  CacheHarness h(FullAndState());
  Travel(h, Range(1, 60), {20, 60}, StateUse::kKept);
  h.StoreAll();
  h.Restart();
  const auto disk = h.tier().disk();
  for (const auto& [key, entry] : disk) {
    if (key.group != kState && entry.identity.start == 32) {
      h.tier().Drop(key);
    }
  }
  h.cache().Poll();
  EXPECT_EQ(Known(h, Range(1, 60)), 20);
}

TEST(StatesTest, DurabilityIsThatOfTheLastDurableState) {
  CacheHarness h(FullAndState());
  Travel(h, Range(1, 60), {20, 60}, StateUse::kKept);
  TokenPos durable = 0;
  while (h.tier().CompleteStores(1) > 0) {
    EXPECT_TRUE(h.cache().DurabilityOf(Range(1, 60), "").pending);
    h.cache().Poll();
    const TokenPos now = h.cache().DurabilityOf(Range(1, 60), "").tokens;
    EXPECT_TRUE(now == 0 || now == 20 || now == 60) << now;
    EXPECT_GE(now, durable);
    durable = now;
  }
  EXPECT_EQ(durable, 60);
  EXPECT_FALSE(h.cache().DurabilityOf(Range(1, 60), "").pending);
}

TEST(StatesTest, StatesOnTheWayAreThinnedToPowersOfTwo) {
  CacheHarness h(FullAndState());
  std::vector<TokenPos> stops;
  for (TokenPos stop = 64; stop <= 4096; stop += 64) {
    stops.push_back(stop);
  }
  const auto sequence =
      Travel(h, Range(1, 4096), stops, StateUse::kPassing, Disk::kFast);
  h.StoreAll();
  const std::vector<TokenPos> kept = {1024, 2048, 2560, 3072, 3328, 3584,
                                      3712, 3840, 3904, 3968, 4032, 4096};
  EXPECT_EQ(StatesOnDisk(h, h.tier()), kept);
  EXPECT_EQ(h.cache().stats().cached_states_in_ram, kept.size());
  EXPECT_EQ(h.cache().stats().thinned_states, stops.size() - kept.size());
  for (const TokenPos stop : stops) {
    const TokenPos found = Known(h, Range(1, stop));
    // No further than the place itself is behind the newest.
    EXPECT_LE(stop - found, 4096 - stop) << stop;
  }
  EXPECT_TRUE(h.tier().problems().empty());
  h.Restart();
  EXPECT_EQ(Known(h, Range(1, 4000)), 3968);
  EXPECT_EQ(Known(h, Range(1, 2047)), 1024);
}

TEST(StatesTest, StatesThatSomebodyMayComeBackToAreNotThinned) {
  CacheHarness h(FullAndState());
  const auto first = Travel(h, Range(1, 100), {65}, StateUse::kKept);
  std::vector<TokenPos> stops;
  for (TokenPos stop = 96; stop <= 2048; stop += 32) {
    stops.push_back(stop);
  }
  Travel(h, Range(1, 2048), stops, StateUse::kPassing, Disk::kFast);
  EXPECT_EQ(Known(h, Range(1, 70)), 65);
}

TEST(StatesTest, AStateThatIsBeingWrittenIsThinnedAfterwards) {
  CacheHarness h(FullAndState());
  const auto sequence = Travel(
      h, Range(1, 512), {64, 128, 192, 256, 320, 384, 448}, StateUse::kPassing);
  // The tier has all of them in its hands.
  EXPECT_EQ(h.cache().stats().thinned_states, 0);
  h.StoreAll();
  ASSERT_TRUE(h.Compute(*sequence, Range(449, 64)).ok());
  h.cache().Publish(*sequence, StateUse::kPassing);
  h.StoreAll();
  EXPECT_EQ(StatesOnDisk(h, h.tier()),
            (std::vector<TokenPos>{128, 256, 320, 384, 448, 512}));
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(StatesTest, AFlushDoesNotMissWhatWasThinned) {
  CacheHarness h(FullAndState());
  h.tier().set_max_pending_stores(1);
  const auto sequence = Travel(
      h, Range(1, 512), {64, 128, 192, 256, 320, 384, 448}, StateUse::kPassing);
  EXPECT_GT(h.cache().stats().thinned_states, 0);
  const uint64_t ticket = h.cache().BeginFlush();
  ASSERT_TRUE(h.Compute(*sequence, Range(449, 64)).ok());
  h.cache().Publish(*sequence, StateUse::kPassing);
  h.StoreAll();
  const auto report = h.cache().FlushOutcome(ticket);
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->durable());
  EXPECT_EQ(report->missing, 0);
}

// The disk refuses whatever it is asked for.
void FailAll(CacheHarness& h) {
  while (h.tier().FailStores(absl::UnknownError("io")) > 0) {
    h.cache().Poll();
  }
}

// Computes up to `stop`, in steps of 64, leaving states that the disk refuses.
void TravelInVain(CacheHarness& h, Sequence& sequence, TokenPos stop) {
  while (sequence.length() < stop) {
    const auto next = static_cast<TokenId>(sequence.length()) + 1;
    ASSERT_TRUE(h.Compute(sequence, Range(next, 64)).ok());
    h.cache().Publish(sequence, StateUse::kPassing);
    FailAll(h);
  }
}

TEST(StatesTest, APassedStateThatIsDurableStaysUntilALaterOneIs) {
  CacheHarness h(FullAndState());
  auto sequence =
      Travel(h, Range(1, 64), {64}, StateUse::kPassing, Disk::kFast);
  const uint64_t ticket = h.cache().BeginFlush();
  ASSERT_TRUE(h.cache().FlushOutcome(ticket)->durable());
  TravelInVain(h, *sequence, 512);
  EXPECT_EQ(StatesOnDisk(h, h.tier()), (std::vector<TokenPos>{64}));
  EXPECT_EQ(h.cache().DurabilityOf(Range(1, 512), "").tokens, 64);
  sequence.reset();
  h.Restart();
  EXPECT_EQ(Known(h, Range(1, 512)), 64);
}

TEST(StatesTest, APassedStateThatHadToStayGoesWithoutAnotherPublication) {
  CacheHarness h(FullAndState());
  auto sequence =
      Travel(h, Range(1, 64), {64}, StateUse::kPassing, Disk::kFast);
  TravelInVain(h, *sequence, 512);
  // The end of the reply.
  ASSERT_TRUE(h.Compute(*sequence, Range(513, 5)).ok());
  h.cache().Publish(*sequence);
  FailAll(h);
  sequence.reset();
  h.clock().Advance(std::chrono::seconds(6));
  h.StoreAll();
  EXPECT_EQ(StatesOnDisk(h, h.tier()),
            (std::vector<TokenPos>{128, 256, 320, 384, 448, 512, 517}));
  EXPECT_EQ(h.cache().stats().cached_states_in_ram, 7);
  EXPECT_TRUE(h.tier().problems().empty());
}

TEST(StatesTest, APlaceFurtherOnInAnotherConversationDoesNotStandForAState) {
  CacheHarness h(FullAndState());
  // Both agree up to 66, and the other one's state is at 70.
  const auto sequence =
      Travel(h, Range(1, 64), {64}, StateUse::kPassing, Disk::kFast);
  Travel(h, Range(1, 66) + Range(900, 4), {70}, StateUse::kKept, Disk::kFast);
  TravelInVain(h, *sequence, 512);
  EXPECT_EQ(StatesOnDisk(h, h.tier()), (std::vector<TokenPos>{64, 70}));
}

TEST(StatesTest, ASecondConversationOnTheSamePathTakesOverWhatHadToStay) {
  CacheHarness h(FullAndState());
  auto first = Travel(h, Range(1, 64), {64}, StateUse::kPassing, Disk::kFast);
  TravelInVain(h, *first, 512);
  first.reset();
  auto second = h.TakeReady(Range(1, 600));
  ASSERT_EQ(second->length(), 512);
  TravelInVain(h, *second, 576);
  second.reset();
  EXPECT_EQ(StatesOnDisk(h, h.tier()), (std::vector<TokenPos>{64}));
  h.clock().Advance(std::chrono::seconds(6));
  h.StoreAll();
  EXPECT_EQ(StatesOnDisk(h, h.tier()),
            (std::vector<TokenPos>{128, 256, 320, 384, 448, 512, 576}));
}

TEST(StatesTest, AFlushWaitsForWhatItFoundAlsoIfThatIsPassed) {
  CacheHarness h(FullAndState());
  h.tier().set_max_pending_stores(0);
  auto sequence = Travel(h, Range(1, 64), {64}, StateUse::kPassing);
  const uint64_t ticket = h.cache().BeginFlush();
  while (sequence->length() < 512) {
    const auto next = static_cast<TokenId>(sequence->length()) + 1;
    ASSERT_TRUE(h.Compute(*sequence, Range(next, 64)).ok());
    h.cache().Publish(*sequence, StateUse::kPassing);
  }
  h.tier().set_max_pending_stores(1);
  std::optional<FlushReport> report;
  for (int i = 0; i < 100 && !report.has_value(); ++i) {
    h.cache().Poll();
    h.tier().CompleteStores(1);
    h.cache().Poll();
    report = h.cache().FlushOutcome(ticket);
  }
  ASSERT_TRUE(report.has_value());
  EXPECT_TRUE(report->durable());
  sequence.reset();
  h.Restart();
  EXPECT_GE(Known(h, Range(1, 512)), 64);
}

TEST(StatesTest, StatesLeaveRamForItsTargetAndComeBack) {
  CacheHarness h(FullAndState(), {12 * kSlot, 40 * kSlot});
  Travel(h, Range(1, 100), {20, 60, 100}, StateUse::kKept);
  h.StoreAll();
  for (TokenId i = 1; i < 5; ++i) {
    h.Generate(Range(1000 * i, 60));
    h.StoreAll();
  }
  h.cache().Poll();
  EXPECT_LE(h.pool().used_bytes(), 12 * kSlot);
  EXPECT_GT(h.cache().stats().demoted_blocks, 0);
  EXPECT_EQ(h.cache().stats().lost_blocks, 0);
  for (const TokenPos p : {100, 60, 20}) {
    EXPECT_EQ(Known(h, Range(1, p)), p);
  }
}

TEST(StatesTest, IdleStatesLeaveRam) {
  HarnessOptions options;
  options.demote_idle = std::chrono::seconds(60);
  CacheHarness h(FullAndState(), options);
  Travel(h, Range(1, 60), {20, 60}, StateUse::kKept);
  h.StoreAll();
  EXPECT_EQ(h.cache().stats().cached_states_in_ram, 2);
  h.clock().Advance(std::chrono::seconds(61));
  h.cache().Poll();
  EXPECT_EQ(h.cache().stats().cached_states_in_ram, 0);
  EXPECT_EQ(h.pool().used_bytes(), 0);
  EXPECT_EQ(Known(h, Range(1, 60)), 60);
}

TEST(StatesTest, ASessionKeepsItsNewestStateNotThoseOnTheWay) {
  CacheHarness h(FullAndState(), {14 * kSlot, 60 * kSlot});
  auto sequence = h.TakeReady(Range(1, 96));
  h.cache().SetSession(*sequence, "s");
  for (const TokenPos stop : {32, 64, 96}) {
    ASSERT_TRUE(
        h.Compute(*sequence, Range(1 + static_cast<TokenId>(stop) - 32, 32))
            .ok());
    h.cache().Publish(*sequence);
  }
  sequence.reset();
  h.StoreAll();
  for (TokenId i = 1; i < 6; ++i) {
    h.Generate(Range(1000 * i, 60));
    h.StoreAll();
    h.cache().Poll();
  }
  EXPECT_EQ(h.Take(Range(1, 97))->reuse().ram, 96);
  EXPECT_FALSE(h.Take(Range(1, 65))->ready());
}

TEST(StatesTest, RoomForStatesCounts) {
  CacheHarness h(FullAndState(), {4 * kSlot, 8 * kSlot});
  EXPECT_EQ(h.cache().SequenceBytes(20, 64), (2 + 2) * kSlot);
  EXPECT_EQ(h.cache().SharedBytes(32), 2 * kSlot);
  const auto sequence = h.Generate(Range(1, 16));
  // The state of its own is published: one more to go on in, and a block.
  EXPECT_TRUE(h.cache().HasRoom(*sequence, 16));
  const auto other = h.Generate(Range(100, 48));
  EXPECT_FALSE(h.cache().HasRoom(*sequence, 16));
}

TEST(StatesTest, ALayoutOfStatesAloneAndAStateOfManyTokensAreRefused) {
  KvCache::Config config;
  config.layout = {16, {RecurrentGroup(8)}};
  EXPECT_TRUE(absl::IsInvalidArgument(config.Validate()));
  config.layout = FullAndState();
  EXPECT_TRUE(config.Validate().ok());
  config.layout.groups[kState].geometry = BlockGeometry(1, 16, {{1, 8}});
  EXPECT_TRUE(absl::IsInvalidArgument(config.Validate()));
}

}  // namespace
}  // namespace everwarm::cache
