#include "server/access.h"

#include <gtest/gtest.h>

namespace everwarm::server {
namespace {

TEST(AccessTest, WithoutAKeyEverythingButAdminIsOpen) {
  const AccessRules rules("", false);
  EXPECT_EQ(rules.Check({.path = "/v1/models", .remote_address = "10.0.0.1"}),
            Access::kAllowed);
  EXPECT_EQ(rules.Check({.path = "/stats", .remote_address = "10.0.0.1"}),
            Access::kAllowed);
}

TEST(AccessTest, WithoutAKeyAdminIsForThisMachine) {
  const AccessRules rules("", false);
  for (const char* here :
       {"127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_EQ(
        rules.Check({.path = "/admin/cache/flush", .remote_address = here}),
        Access::kAllowed)
        << here;
  }
  for (const char* there : {"10.0.0.1", "::2", "", "fe80::127.0.0.1"}) {
    EXPECT_EQ(
        rules.Check({.path = "/admin/cache/flush", .remote_address = there}),
        Access::kNotFromThere)
        << there;
  }
  EXPECT_EQ(AccessRules("", true).Check(
                {.path = "/admin/cache/flush", .remote_address = "10.0.0.1"}),
            Access::kAllowed);
}

TEST(AccessTest, OnlyNumericAddressesOfThisMachineAreLoopback) {
  for (const char* here : {"127.0.0.1", "127.255.255.254", "::1",
                           "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(here)) << here;
  }
  // A name may be anybody's, whatever it begins with.
  for (const char* there :
       {"127.example.com", "localhost", "128.0.0.1", "0.0.0.0",
        "::", "::ffff:10.0.0.1", "::2", "", "127.0.0.1 ", "127.1"}) {
    EXPECT_FALSE(IsLoopback(there)) << there;
  }
}

TEST(AccessTest, AKeyProtectsEverythingButHealth) {
  const AccessRules rules("secret", false);
  EXPECT_EQ(rules.Check({.path = "/health"}), Access::kAllowed);
  for (const char* path : {"/v1/models", "/stats", "/admin/cache/flush",
                           "/health/", "/HEALTH", "/", "/nothing"}) {
    EXPECT_EQ(rules.Check({.path = path, .remote_address = "127.0.0.1"}),
              Access::kWrongKey)
        << path;
    EXPECT_EQ(rules.Check({.path = path, .authorization = "Bearer secret"}),
              Access::kAllowed)
        << path;
    EXPECT_EQ(rules.Check({.path = path, .x_api_key = "secret"}),
              Access::kAllowed)
        << path;
  }
}

TEST(AccessTest, OnlyTheWholeKeyIsTheKey) {
  const AccessRules rules("secret", false);
  for (const char* wrong :
       {"Bearer ", "Bearer", "", "Bearer secre", "Bearer secrets",
        "Bearer Secret", "Bearer  secret", "Basic secret", "secret"}) {
    EXPECT_EQ(rules.Check({.path = "/stats", .authorization = wrong}),
              Access::kWrongKey)
        << wrong;
  }
}

}  // namespace
}  // namespace everwarm::server
