#include "tests/torture/history.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/torture/world.h"

namespace everwarm::torture {
namespace {

using Unsynced = SimDisk::Unsynced;

constexpr uint64_t kSlotBytes = 4096;
// A file of a block of these layouts: a header page and a payload page.
constexpr uint64_t kFileBytes = 8192;

struct Live {
  std::unique_ptr<Sequence> sequence;
  Tokens prompt;
  std::string name_space;
};

WorldOptions RandomOptions(std::mt19937_64& random, Logger logger) {
  WorldOptions options;
  options.logger = std::move(logger);
  switch (random() % 7) {
    case 0:
      options.layout = cache::FullOnly();
      break;
    case 1:
      options.layout = cache::FullAndWindow();
      break;
    case 2:
      options.layout = cache::FullAndState();
      break;
    case 3:
      options.layout = cache::WindowAndTwoStates();
      break;
    case 4:
      options.layout = cache::MixedAndWindow();
      break;
    case 5:
      options.layout = cache::MixedAndState();
      break;
    default:
      options.layout = cache::ThreeGroups();
  }
  switch (random() % 3) {
    case 0:
      options.ram_target_bytes = 0;
      break;
    case 1:
      options.ram_target_bytes = 15 * kSlotBytes;
      options.ram_hard_cap_bytes = (15 + random() % 40) * kSlotBytes;
      break;
    default:
      break;
  }
  if (random() % 2 == 0) {
    options.ssd_bytes = (10 + random() % 60) * kFileBytes;
  }
  options.max_queued_stores = random() % 3 == 0 ? 1 + random() % 4 : 1000;
  options.max_batch_blocks = 1 + random() % 8;
  options.seed = random();
  return options;
}

class History {
 public:
  History(uint64_t number, Counts* counts, Logger logger)
      : random_(number * 0x9E3779B97F4A7C15u + 1),
        options_(RandomOptions(random_, std::move(logger))),
        world_(options_, &SharedPool(options_.layout), counts),
        damages_(Below(3) == 0),
        faults_(Below(3) == 0) {}

  std::vector<std::string> Run() {
    world_.Open();
    const uint32_t steps = 32 + Below(64);
    for (uint32_t step = 0; step < steps && world_.problems().empty(); ++step) {
      Step();
    }
    End();
    return world_.problems();
  }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  struct Kind {
    const char* name;
    // Of all.
    uint32_t weight;
    void (History::*run)();
  };

  void Step() {
    static constexpr Kind kKinds[] = {
        {"take", 3, &History::Take},
        {"extend", 3, &History::Extend},
        {"publish", 2, &History::Publish},
        {"let go", 1, &History::Drop},
        {"a writer's turn", 1, &History::RunWriter},
        {"a reader's turn", 1, &History::RunReader},
        {"poll", 1, &History::Poll},
        {"settle", 2, &History::Settle},
        {"time passes", 1, &History::PassTime},
        {"begin a flush", 1, &History::BeginFlush},
        {"demote", 1, &History::Demote},
        {"write the newest first", 1, &History::WriteNewestFirst},
        {"crash", 1, &History::Crash},
        {"stop and start", 1, &History::StopAndStart},
        {"a second process", 1, &History::OpenSecondProcess},
        {"damage", 2, &History::Damage},
        {"other faults", 1, &History::ChangeFaults},
        {"scrub", 1, &History::Scrub},
        {"compare", 2, &History::Check},
    };
    uint32_t total = 0;
    for (const Kind& kind : kKinds) {
      total += kind.weight;
    }
    uint32_t choice = Below(total);
    for (const Kind& kind : kKinds) {
      if (choice < kind.weight) {
        options_.logger->info("{}", kind.name);
        return (this->*kind.run)();
      }
      choice -= kind.weight;
    }
  }

  void RunWriter() { world_.RunWriter(); }
  void RunReader() { world_.RunReader(); }
  void Settle() { world_.Settle(); }
  void OpenSecondProcess() { world_.OpenSecondProcess(); }
  void PassTime() {
    world_.clock().Advance(std::chrono::milliseconds(Below(90000)));
    Poll();
  }
  void BeginFlush() {
    world_.BeginFlush();
    Poll();
  }
  void Demote() {
    if (Below(2) == 0) {
      world_.cache().DemoteAll();
    }
    if (Below(4) == 0) {
      world_.cache().CloseSession(absl::StrCat("session ", Below(4)));
    }
  }
  void WriteNewestFirst() { world_.cache().WriteNewestFirst(); }
  void Damage() {
    if (damages_) {
      world_.Damage(random_());
    }
  }

  // Some of the files, or all of them.
  void Scrub() {
    world_.Scrub(std::chrono::milliseconds(1 + Below(2000)),
                 Below(2) == 0 ? Below(10) : 100);
    if (Below(2) == 0) {
      Poll();
    }
  }

  // Few different tokens: conversations agree, diverge and meet again often.
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
    if (!known_.empty() && Below(6) > 0) {
      const Conversation& base = known_[Below(known_.size())];
      live.name_space = base.name_space;
      const auto size = static_cast<uint32_t>(base.tokens.size());
      live.prompt =
          cache::First(base.tokens, Below(3) > 0 ? size : Below(size + 1));
    }
    live.prompt = std::move(live.prompt) + RandomTokens(1 + Below(40));
    live.sequence = world_.Take(
        live.prompt, live.name_space,
        Below(3) == 0 ? absl::StrCat("session ", Below(4)) : std::string());
    live_.push_back(std::move(live));
    CheckOne(live_.back());
    if (live_.size() > 6) {
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
    if (live == nullptr || live->sequence->length() > 150) {
      return;
    }
    Sequence& sequence = *live->sequence;
    Tokens next(live->prompt.begin() +
                    std::min<size_t>(sequence.length(), live->prompt.size()),
                live->prompt.end());
    if (next.empty()) {
      next = RandomTokens(1 + Below(40));
    }
    const uint32_t used = Below(3) == 0 ? 1 + Below(next.size()) : next.size();
    const Tokens rest(next.begin() + used, next.end());
    world_.Extend(sequence, cache::First(next, used),
                  Below(3) == 0 ? rest : Tokens(), live->name_space);
    CheckOne(*live);
  }

  void Publish() {
    Live* const live = PickReady();
    if (live == nullptr) {
      return;
    }
    world_.Publish(
        *live->sequence, live->name_space,
        Below(3) == 0 ? cache::StateUse::kPassing : cache::StateUse::kKept);
    CheckOne(*live);
    const absl::Span<const TokenId> tokens = live->sequence->tokens();
    known_.push_back({{tokens.begin(), tokens.end()}, live->name_space});
    if (known_.size() > 15) {
      known_.erase(known_.begin() + Below(known_.size()));
    }
  }

  void Drop() {
    if (!live_.empty()) {
      std::swap(live_[Below(live_.size())], live_.back());
      live_.pop_back();
    }
  }

  void Poll() {
    world_.Poll();
    world_.EndFlushes();
  }

  void CheckOne(const Live& live) {
    if (live.sequence->ready()) {
      world_.Check(*live.sequence, live.name_space);
    }
  }
  void Check() {
    Poll();
    for (const Live& live : live_) {
      CheckOne(live);
    }
    if (live_.empty()) {
      world_.Settle();
      world_.CheckRam();
    }
  }

  // Between two calls, or in the middle of what the process still does.
  void Crash() {
    if (Below(2) == 0) {
      return;
    }
    if (Below(2) == 0) {
      world_.disk().CrashAtCall(1 + Below(30));
      for (uint32_t i = Below(6); i > 0; --i) {
        Take();
        Extend();
        Publish();
        world_.BeginFlush();
        world_.RunWriter();
        Poll();
      }
      world_.Settle();
      world_.EndFlushes();
    }
    live_.clear();
    constexpr Unsynced kAll[] = {Unsynced::kKept, Unsynced::kDropped,
                                 Unsynced::kTorn, Unsynced::kReordered};
    world_.Crash(kAll[Below(4)], random_());
    Restart();
  }

  void StopAndStart() {
    if (Below(3) > 0) {
      return;
    }
    if (Below(3) > 0) {
      world_.Flush();
    }
    live_.clear();
    world_.Close();
    if (options_.ssd_bytes < (uint64_t{1} << 20) && Below(3) == 0) {
      world_.options().ssd_bytes = (10 + Below(60)) * kFileBytes;
    }
    if (Below(4) == 0) {
      SetTimes();
    }
    // An end without a crash leaves nothing more durable than it was.
    world_.Crash(Below(2) == 0 ? Unsynced::kKept : Unsynced::kDropped,
                 random_());
    Restart();
  }

  void Restart() {
    world_.Open();
    if (!world_.running()) {
      return;
    }
    std::vector<Conversation> wanted = world_.acknowledged();
    if (wanted.size() > 3) {
      std::shuffle(wanted.begin(), wanted.end(), random_);
      wanted.resize(3);
    }
    world_.CheckConversations(wanted);
  }

  // Files from the future, and from before there were any.
  void SetTimes() {
    for (const std::string& path : world_.disk().Paths()) {
      if (Below(3) == 0) {
        world_.disk().SetTime(
            path, Below(2) == 0
                      ? world_.clock().WallNow() + std::chrono::hours(9000)
                      : Clock::Wall(-std::chrono::hours(Below(3))));
      }
    }
  }

  void ChangeFaults() {
    if (!faults_) {
      return;
    }
    if (Below(2) == 0) {
      world_.disk().ClearFaults();
      world_.disk().set_capacity(uint64_t{1} << 40);
      return;
    }
    SimDisk::Chances chances;
    for (uint32_t* chance :
         {&chances.read_error, &chances.short_read, &chances.flipped_read,
          &chances.write_error, &chances.no_space, &chances.sync_error,
          &chances.name_error}) {
      *chance = Below(3) == 0 ? Below(300) : 0;
    }
    world_.SetChances(chances);
    if (Below(3) == 0) {
      world_.LeaveRoom(Below(60000));
    }
  }

  // All is published, flushed, and found again after the power has gone.
  void End() {
    if (!world_.problems().empty()) {
      return;
    }
    world_.disk().ClearFaults();
    world_.disk().set_capacity(uint64_t{1} << 40);
    world_.Settle();
    for (Live& live : live_) {
      if (!live.sequence->ready()) {
        world_.Problem("a sequence waits for reads that have ended");
        continue;
      }
      world_.Publish(*live.sequence, live.name_space);
    }
    live_.clear();
    world_.Flush();
    world_.CheckRam();
    world_.Crash(Unsynced::kDropped, 0);
    world_.Open();
    if (world_.running()) {
      world_.CheckConversations(world_.acknowledged());
    }
  }

  std::mt19937_64 random_;
  const WorldOptions options_;
  World world_;
  const bool damages_;
  const bool faults_;
  std::deque<Live> live_;
  std::vector<Conversation> known_;
};

}  // namespace

std::vector<std::string> RunHistory(uint64_t number, Counts* counts,
                                    Logger logger) {
  ++counts->histories;
  std::vector<std::string> problems =
      History(number, counts, std::move(logger)).Run();
  for (std::string& problem : problems) {
    problem = absl::StrCat("history ", number, ": ", problem);
  }
  return problems;
}

}  // namespace everwarm::torture
