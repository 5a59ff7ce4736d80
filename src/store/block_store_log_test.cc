// What the store tells people, and how often.
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>

#include "testing/store_harness.h"

namespace everwarm::store {
namespace {

TEST(BlockStoreLogTest, AFullDiskIsNotALineForEachBlock) {
  std::ostringstream log;
  StoreHarness h;
  h.logger = std::make_shared<spdlog::logger>(
      "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log));
  h.env.set_capacity(64 * 1024);
  ASSERT_TRUE(h.Open().ok());
  h.StoreAll(Chain(1, 2000, TestFingerprint()));
  EXPECT_GT(h.store->stats().failed_stores, 100u);
  size_t lines = 0;
  for (size_t at = 0;
       (at = log.str().find("were not stored", at)) != std::string::npos;
       ++at) {
    ++lines;
  }
  EXPECT_EQ(lines, 1u);
}

}  // namespace
}  // namespace everwarm::store
