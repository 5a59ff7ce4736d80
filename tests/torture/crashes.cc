#include "tests/torture/crashes.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace everwarm::torture {
namespace {

using cache::Range;
using Unsynced = SimDisk::Unsynced;

// Several conversations with a common beginning, all durable.
void StoreSome(World& world) {
  world.Open();
  world.Generate(Range(0, 40), "", "agent");
  world.Generate(Range(0, 32) + Range(500, 20));
  world.Generate(Range(900, 50), "other", "agent");
  if (!world.Flush()) {
    world.Problem("nothing is wrong and a flush fails");
  }
}

void StoreSomeAndClose(World& world) {
  StoreSome(world);
  world.Close();
}

// Longer tails, a fork, something new.
void PublishMore(World& world) {
  world.Generate(Range(0, 70), "", "agent");
  world.Generate(Range(0, 45) + Range(700, 9));
  world.Generate(Range(900, 70), "other");
  world.Generate(Range(2000, 33), "", "another agent");
  world.Flush();
}

// States on the way, most of which go again.
void TravelFar(World& world) {
  const auto sequence = world.Take(Range(4000, 320), "");
  for (TokenId first = 4000; first < 4320; first += 32) {
    world.Extend(*sequence, Range(first, 32), {}, "");
    world.Publish(*sequence, "", cache::StateUse::kPassing);
    world.Settle();
  }
  world.Publish(*sequence, "");
  world.Flush();
}

void StartAndPublish(World& world) {
  world.Open();
  if (world.running()) {
    PublishMore(world);
  }
}

void FillTheDisk(World& world) {
  world.Open();
  for (TokenId first = 0; first < 5000; first += 1000) {
    world.Generate(Range(first, 40), "", first == 2000 ? "agent" : "");
    world.clock().Advance(std::chrono::seconds(1));
  }
  world.Flush();
}

void PublishBeyondTheCap(World& world) {
  for (TokenId first = 10000; first < 13000; first += 1000) {
    world.Generate(Range(first, 50));
    world.clock().Advance(std::chrono::seconds(1));
  }
  world.Flush();
}

void StoreAndDamage(World& world) {
  StoreSome(world);
  world.cache().DemoteAll();
  for (const uint64_t random : {1u, 60u, 8u + 64u * 77u, 4u + 64u * 4000u}) {
    world.Damage(random);
  }
}

// Reads what is damaged, computes it again, stores it again.
void ReadDamaged(World& world) {
  world.Generate(Range(0, 41));
  world.Generate(Range(0, 32) + Range(500, 21));
  world.Generate(Range(900, 51), "other");
  world.Flush();
}

// Finds by itself what is damaged, before it is read.
void ScrubDamaged(World& world) {
  world.Scrub(std::chrono::seconds(1), 100);
  world.Settle();
  ReadDamaged(world);
}

// What a scan has to tidy up: temporary files, damage, another model's files,
// and more than a smaller cap allows.
void LeaveAMess(World& world) {
  StoreSomeAndClose(world);
  world.Damage(3 + 64 * 5);
  world.Damage(12 + 64 * 9);
  SimDisk& disk = world.disk();
  disk.Put(world.OwnDir() + "/tmp-3", SimDisk::Bytes(5000));
  disk.Put(world.OwnDir() + "/readme", SimDisk::Bytes(10));
  Fingerprint foreign;
  foreign.digest.fill(9);
  const std::string dir = "/var/cache/" + foreign.hex();
  disk.Put(dir, {}, store::FileKind::kDirectory);
  disk.Put(dir + "/tmp-0", SimDisk::Bytes(5000));
  for (uint8_t number = 1; number <= 3; ++number) {
    BlockKey key;
    key.node.digest.fill(number);
    disk.Put(dir + "/" + store::BlockFileName(key), SimDisk::Bytes(8192));
  }
  world.options().ssd_bytes = disk.used_bytes() - 30000;
}

void Start(World& world) { world.Open(); }

// Many blocks, few at a time, and an orderly end.
void PublishFlushAndClose(World& world) {
  for (TokenId first = 20000; first < 22000; first += 1000) {
    const auto sequence = world.Take(Range(first, 60), "");
    world.Extend(*sequence, Range(first, 60), {}, "");
    world.Publish(*sequence, "");
  }
  world.Flush();
  if (!world.disk().crashed()) {
    world.Close();
  }
}

WorldOptions Options(cache::CacheLayout layout) {
  WorldOptions options;
  options.layout = std::move(layout);
  return options;
}

std::string NameOf(Unsynced unsynced) {
  switch (unsynced) {
    case Unsynced::kKept:
      return "kept";
    case Unsynced::kDropped:
      return "dropped";
    case Unsynced::kTorn:
      return "torn";
    case Unsynced::kReordered:
      return "reordered";
  }
  return "";
}

// One crash, and what is found after it. False when the scene ended before.
bool StopOnce(const Scene& scene, int call, Unsynced unsynced, uint64_t seed,
              Counts* counts, std::vector<std::string>* problems) {
  World world(scene.options, &SharedPool(scene.options.layout), counts);
  scene.before(world);
  world.disk().CrashAtCall(call);
  scene.during(world);
  const bool stopped = world.disk().crashed();
  counts->enumerated_crashes += stopped ? 1 : 0;
  world.Crash(unsynced, seed);

  world.Open();
  world.CheckConversations(world.acknowledged());
  // Life goes on, and then the power goes once more.
  world.Generate(Range(0, 70));
  world.Generate(Range(30000, 35));
  if (!world.Flush()) {
    world.Problem("nothing is wrong any more and a flush fails");
  }
  const std::vector<Conversation> acknowledged = world.acknowledged();
  world.Crash(Unsynced::kDropped, seed);
  world.Open();
  world.CheckConversations(acknowledged);
  for (const std::string& problem : world.problems()) {
    problems->push_back(absl::StrCat(scene.name, " stopped at call ", call,
                                     ", unsynced ", NameOf(unsynced), ", seed ",
                                     seed, ": ", problem));
  }
  return stopped;
}

}  // namespace

std::vector<Scene> AllScenes() {
  std::vector<Scene> scenes;
  struct Kind {
    std::string suffix;
    cache::CacheLayout layout;
    // What all that a scene generates at once takes.
    uint64_t files;
  };
  const std::vector<Kind> kinds = {
      {"", cache::FullOnly(), 14},
      {" (window model)", cache::FullAndWindow(), 26},
      {" (recurrent model)", cache::FullAndState(), 18}};
  for (const auto& [suffix, layout, files] : kinds) {
    const WorldOptions plain = Options(layout);
    WorldOptions capped = plain;
    capped.ssd_bytes = files * 8192 + 3 * 8192;
    WorldOptions small_queue = plain;
    small_queue.max_queued_stores = 3;
    small_queue.max_batch_blocks = 2;
    WorldOptions no_ram = plain;
    no_ram.ram_target_bytes = 0;
    scenes.push_back(
        {"first start" + suffix, plain, [](World&) {}, StartAndPublish});
    scenes.push_back({"publish" + suffix, plain, StoreSome, PublishMore});
    scenes.push_back(
        {"publish without RAM" + suffix, no_ram, StoreSome, PublishMore});
    scenes.push_back(
        {"evict" + suffix, capped, FillTheDisk, PublishBeyondTheCap});
    scenes.push_back(
        {"set aside" + suffix, no_ram, StoreAndDamage, ReadDamaged});
    scenes.push_back({"scrub" + suffix, plain, StoreAndDamage, ScrubDamaged});
    scenes.push_back({"scan" + suffix, plain, LeaveAMess, Start});
    scenes.push_back(
        {"adopt" + suffix, plain, StoreSomeAndClose, StartAndPublish});
    scenes.push_back(
        {"close" + suffix, small_queue, StoreSome, PublishFlushAndClose});
    if (HasStates(layout)) {
      scenes.push_back({"thin" + suffix, plain, StoreSome, TravelFar});
    }
  }
  return scenes;
}

std::vector<std::string> StopAtEachCall(const Scene& scene, uint64_t seeds,
                                        Counts* counts) {
  std::vector<std::string> problems;
  bool stopped = true;
  for (int call = 1; stopped && problems.size() < 20; ++call) {
    StopOnce(scene, call, Unsynced::kKept, 0, counts, &problems);
    stopped = StopOnce(scene, call, Unsynced::kDropped, 0, counts, &problems);
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      StopOnce(scene, call, Unsynced::kTorn, seed, counts, &problems);
      StopOnce(scene, call, Unsynced::kReordered, seed, counts, &problems);
    }
  }
  return problems;
}

}  // namespace everwarm::torture
