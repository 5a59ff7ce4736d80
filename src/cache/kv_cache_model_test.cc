// Thousands of random steps against simple models: every byte of every block
// says which tokens it stands for, and what a take must find is worked out from
// the disk's entries by the definition alone.
#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cache/kv_cache.h"
#include "gtest/gtest.h"
#include "testing/cache_harness.h"
#include "testing/resume_definition.h"

namespace everwarm::cache {
namespace {

struct Live {
  std::unique_ptr<Sequence> sequence;
  Tokens prompt;
  std::string name_space;
};

struct Published {
  Tokens tokens;
  std::string name_space;
};

class Driver {
 public:
  Driver(CacheLayout layout, HarnessOptions options, uint32_t seed)
      : harness_(std::move(layout), options), random_(seed) {}

  void Run(int steps) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      SCOPED_TRACE("step " + std::to_string(i));
      Step();
      for (const std::string& problem : harness_.tier().problems()) {
        ADD_FAILURE() << problem;
      }
    }
    CheckFlushThenRestart();
  }

 private:
  uint32_t Below(uint32_t n) { return random_() % n; }

  void Step() {
    switch (Below(16)) {
      case 0:
      case 1:
        return Take();
      case 2:
      case 3:
      case 4:
        return Extend();
      case 5:
      case 6:
        return Publish();
      case 7:
        return End();
      case 8:
        harness_.tier().CompleteStores(Below(20));
        return harness_.cache().Poll();
      case 9:
        harness_.tier().CompleteLoads(Below(20));
        return harness_.cache().Poll();
      case 10:
        if (Below(3) == 0) {
          harness_.tier().FailStores(absl::UnknownError("io"), Below(5));
          harness_.tier().FailLoads(absl::DataLossError("bad"), Below(3));
        }
        return harness_.cache().Poll();
      case 11:
        harness_.clock().Advance(std::chrono::milliseconds(Below(4000)));
        harness_.tier().set_max_pending_stores(Below(3) == 0 ? Below(4) : 50);
        return harness_.cache().Poll();
      case 12:
        return Below(3) == 0 ? DropSome() : harness_.cache().Poll();
      case 13:
        harness_.cache().CloseSession(RandomSession());
        return Flush();
      case 14:
        return Below(8) == 0 ? harness_.cache().DemoteAll() : CheckLive();
      case 15:
        return Below(10) == 0 ? Restart() : CheckLive();
    }
  }

  std::string RandomSession() { return absl::StrCat("session ", Below(5)); }

  // Few different tokens: sequences agree, diverge and meet again often.
  Tokens RandomTokens(uint32_t count) {
    Tokens tokens(count);
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(Below(12) == 0 ? Below(3) : 0);
    }
    return tokens;
  }

  void Take() {
    Live live;
    live.name_space = Below(4) == 0 ? "other" : "";
    if (!published_.empty() && Below(6) > 0) {
      const Published& base = published_[Below(published_.size())];
      live.name_space = base.name_space;
      const uint32_t size = static_cast<uint32_t>(base.tokens.size());
      live.prompt = First(base.tokens, Below(3) > 0 ? size : Below(size + 1));
    }
    live.prompt = std::move(live.prompt) + RandomTokens(1 + Below(40));
    harness_.cache().Poll();
    // While nothing is on its way, what the disk has can only be too little.
    const bool quiet =
        harness_.tier().loads().empty() && harness_.tier().stores().empty();
    const TokenPos on_disk = FromDisk(live.prompt, live.name_space);
    live.sequence = harness_.Take(live.prompt, live.name_space);
    if (Below(2) == 0) {
      harness_.cache().SetSession(*live.sequence, RandomSession());
    }
    if (quiet) {
      EXPECT_GE(live.sequence->length(), on_disk);
    }
    live_.push_back(std::move(live));
    CheckReuse(live_.back());
    if (live_.size() > 8) {
      live_.pop_front();
    }
  }

  Live* PickReady() {
    if (live_.empty()) {
      return nullptr;
    }
    Live& live = live_[Below(live_.size())];
    return live.sequence->ready() ? &live : nullptr;
  }

  void Extend() {
    Live* const live = PickReady();
    if (live == nullptr) {
      return;
    }
    Sequence& sequence = *live->sequence;
    if (sequence.length() > 400) {
      return;
    }
    Tokens next(live->prompt.begin() +
                    std::min<size_t>(sequence.length(), live->prompt.size()),
                live->prompt.end());
    if (next.empty()) {
      next = RandomTokens(1 + Below(40));
    }
    const uint32_t reserved = 1 + Below(next.size());
    const uint32_t used = Below(4) == 0 ? Below(reserved + 1) : reserved;
    ASSERT_TRUE(harness_.cache().Reserve(sequence, reserved).ok());
    // Written like a step whose last tokens are thrown away, which a state
    // cannot undo.
    const bool states = HasStates(harness_.layout());
    harness_.Write(sequence, First(next, states ? used : reserved),
                   live->name_space);
    harness_.cache().Append(sequence, First(next, used));
    EXPECT_EQ(harness_.Check(sequence, live->name_space), "");
    CheckWindows(sequence);
  }

  // No more than the window and two spans, however long the step was; room
  // ahead that was not used up does not count.
  void CheckWindows(const Sequence& sequence) {
    const CacheLayout& layout = harness_.layout();
    for (size_t g = 0; g < layout.groups.size(); ++g) {
      if (layout.groups[g].kind == GroupKind::kWindow) {
        auto blocks = sequence.blocks(static_cast<GroupIndex>(g));
        blocks = blocks.subspan(
            0, std::min<size_t>(blocks.size(),
                                sequence.length() / layout.block_tokens + 1));
        const auto held =
            blocks.size() - static_cast<size_t>(std::count(
                                blocks.begin(), blocks.end(), nullptr));
        EXPECT_LE(held * layout.block_tokens,
                  layout.groups[g].window + 2 * layout.block_tokens);
      }
    }
  }

  void Publish() {
    Live* const live = PickReady();
    if (live == nullptr) {
      return;
    }
    const uint32_t use = Below(4);
    harness_.cache().Publish(*live->sequence, use == 0   ? StateUse::kNone
                                              : use == 1 ? StateUse::kPassing
                                                         : StateUse::kKept);
    EXPECT_EQ(harness_.Check(*live->sequence, live->name_space), "");
    const absl::Span<const TokenId> tokens = live->sequence->tokens();
    published_.push_back({{tokens.begin(), tokens.end()}, live->name_space});
    if (published_.size() > 30) {
      published_.erase(published_.begin() + Below(published_.size()));
    }
  }

  void End() {
    if (live_.empty()) {
      return;
    }
    std::swap(live_[Below(live_.size())], live_.back());
    Live& live = live_.back();
    if (live.sequence->ready() && Below(3) == 0) {
      // A step fails in the middle: what was there before it is published.
      const Tokens tokens = RandomTokens(1 + Below(20));
      ASSERT_TRUE(
          harness_.cache()
              .Reserve(*live.sequence, static_cast<TokenPos>(tokens.size()))
              .ok());
      harness_.Write(*live.sequence, tokens, live.name_space);
      harness_.cache().Publish(*live.sequence);
    }
    live_.pop_back();
  }

  void DropSome() {
    std::vector<BlockKey> keys;
    for (const auto& [key, entry] : harness_.tier().disk()) {
      keys.push_back(key);
    }
    // The map's order is another in every run.
    std::sort(keys.begin(), keys.end(), [](const auto& a, const auto& b) {
      return std::tie(a.node, a.group) < std::tie(b.node, b.group);
    });
    for (const BlockKey& key : keys) {
      if (Below(20) == 0) {
        harness_.tier().Drop(key);
      }
    }
    harness_.cache().Poll();
  }

  void Flush() {
    if (tickets_.size() < 3) {
      tickets_.push_back(harness_.cache().BeginFlush());
    }
    std::erase_if(tickets_, [&](uint64_t ticket) {
      const auto report = harness_.cache().FlushOutcome(ticket);
      if (!report.has_value()) {
        return false;
      }
      EXPECT_EQ(report->pending, 0);
      EXPECT_LE(report->entries, harness_.tier().disk().size());
      return true;
    });
  }

  void CheckReuse(const Live& live) {
    const Reuse& reuse = live.sequence->reuse();
    EXPECT_LT(reuse.cached, live.prompt.size());
    EXPECT_LE(reuse.cached, reuse.matched);
    EXPECT_EQ(reuse.cached, reuse.ram + reuse.tier);
    if (live.sequence->ready()) {
      EXPECT_TRUE(std::equal(live.sequence->tokens().begin(),
                             live.sequence->tokens().begin() + reuse.cached,
                             live.prompt.begin()));
    }
  }

  void CheckLive() {
    for (const Live& live : live_) {
      CheckReuse(live);
      if (live.sequence->ready()) {
        EXPECT_EQ(harness_.Check(*live.sequence, live.name_space), "");
      }
    }
  }

  void Restart() {
    live_.clear();
    tickets_.clear();
    harness_.Restart();
    for (const Published& published : published_) {
      CheckFromDisk(published);
    }
  }

  void CheckFromDisk(const Published& published) {
    const Tokens prompt = published.tokens + Tokens{1};
    const TokenPos expected = FromDisk(prompt, published.name_space);
    const auto sequence = harness_.TakeReady(prompt, published.name_space);
    EXPECT_EQ(sequence->length(), expected);
    EXPECT_EQ(harness_.Check(*sequence, published.name_space), "");
  }

  // Everything is published, flushed, and found again by a new process.
  void CheckFlushThenRestart() {
    if (testing::Test::HasFailure()) {
      return;
    }
    while (harness_.tier().CompleteLoads() > 0) {
      harness_.cache().Poll();
    }
    for (Live& live : live_) {
      harness_.cache().Publish(*live.sequence);
    }
    harness_.tier().set_max_pending_stores(1000);
    const uint64_t ticket = harness_.cache().BeginFlush();
    harness_.StoreAll();
    const auto report = harness_.cache().FlushOutcome(ticket);
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->failed, 0);
    EXPECT_EQ(report->durable(), report->missing == 0 && report->dropped == 0);
    std::vector<Published> all;
    for (const Live& live : live_) {
      const absl::Span<const TokenId> tokens = live.sequence->tokens();
      all.push_back({{tokens.begin(), tokens.end()}, live.name_space});
    }
    live_.clear();
    if (harness_.cache().stats().ram_target_bytes == 0) {
      harness_.cache().Poll();
      EXPECT_EQ(harness_.pool().used_bytes(), 0);
    }
    harness_.Restart();
    EXPECT_EQ(harness_.pool().used_bytes(), 0);
    for (const Published& published : all) {
      const Tokens prompt = published.tokens + Tokens{1};
      EXPECT_EQ(FromDisk(prompt, published.name_space),
                published.tokens.size());
      CheckFromDisk(published);
    }
    for (const std::string& problem : harness_.tier().problems()) {
      ADD_FAILURE() << problem;
    }
  }

  TokenPos FromDisk(const Tokens& prompt, const std::string& name_space) {
    std::vector<const BlockIdentity*> blocks;
    for (const auto& [key, entry] : harness_.tier().disk()) {
      blocks.push_back(&entry.identity);
    }
    return ResumeByDefinition(harness_.layout(), blocks, prompt,
                              harness_.Root(name_space));
  }

  CacheHarness harness_;
  std::mt19937 random_;
  std::deque<Live> live_;
  std::vector<Published> published_;
  std::vector<uint64_t> tickets_;
};

constexpr uint64_t kSlot = 4096;

class KvCacheModelTest : public testing::TestWithParam<uint32_t> {};

TEST_P(KvCacheModelTest, FullGroupsWithRoomForEverything) {
  Driver(FullOnly(), {}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, FullGroupsWithLittleRoom) {
  Driver(FullOnly(), {20 * kSlot, 60 * kSlot}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, WindowGroupsWithLittleRoom) {
  Driver(FullAndWindow(), {30 * kSlot, 80 * kSlot}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, ThreeGroupsWithoutAnyRoomThatIsNotNeeded) {
  Driver(ThreeGroups(), {0, 20 * kSlot}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, ThreeGroupsWithRoomForEverything) {
  Driver(ThreeGroups(), {}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, StatesWithRoomForEverything) {
  Driver(FullAndState(), {}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, StatesWithLittleRoom) {
  Driver(FullAndState(), {20 * kSlot, 60 * kSlot}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, StatesOfTwoGroupsBesideWindowsWithLittleRoom) {
  Driver(WindowAndTwoStates(), {40 * kSlot, 90 * kSlot}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, StatesWithoutAnyRoomThatIsNotNeeded) {
  Driver(WindowAndTwoStates(), {0, 30 * kSlot}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, FirstTokensOfAnotherCodecWithRoomForEverything) {
  Driver(MixedAndWindow(), {}, GetParam()).Run(2500);
}

TEST_P(KvCacheModelTest, FirstTokensOfAnotherCodecWithLittleRoom) {
  Driver(MixedAndState(), {40 * kSlot, 90 * kSlot}, GetParam()).Run(2500);
}

INSTANTIATE_TEST_SUITE_P(Seeds, KvCacheModelTest, testing::Range(1u, 13u));

}  // namespace
}  // namespace everwarm::cache
