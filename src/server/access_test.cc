#include "server/access.h"

#include <gtest/gtest.h>

#include <string_view>

namespace everwarm::server {
namespace {

TEST(AccessTest, WithoutAKeyEverythingButAdminIsOpen) {
  const AccessRules rules({});
  EXPECT_EQ(rules.Check({.path = "/v1/models", .remote_address = "10.0.0.1"}),
            Access::kAllowed);
  EXPECT_EQ(rules.Check({.path = "/stats", .remote_address = "10.0.0.1"}),
            Access::kAllowed);
}

TEST(AccessTest, WithoutAKeyAdminIsForThisMachine) {
  const AccessRules rules({});
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
  EXPECT_EQ(
      AccessRules({.admin_from_anywhere = true})
          .Check({.path = "/admin/cache/flush", .remote_address = "10.0.0.1"}),
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

TEST(AccessTest, WithoutAKeyAdminIsNotForWhoeverComesThroughAProxy) {
  AccessRules::Asker asker = {
      .path = "/admin/drain", .remote_address = "127.0.0.1", .forwarded = true};
  EXPECT_EQ(AccessRules({}).Check(asker), Access::kNotFromThere);
  asker.path = "/v1/models";
  EXPECT_EQ(AccessRules({}).Check(asker), Access::kAllowed);
  asker.path = "/admin/drain";
  asker.x_api_key = "secret";
  EXPECT_EQ(AccessRules({.api_key = "secret"}).Check(asker), Access::kAllowed);
}

TEST(AccessTest, TheHostIsWhatStandsBeforeThePort) {
  EXPECT_EQ(HostOfAuthority("LocalHost:8080"), "localhost");
  EXPECT_EQ(HostOfAuthority("127.0.0.1"), "127.0.0.1");
  EXPECT_EQ(HostOfAuthority("[::1]:80"), "::1");
  EXPECT_EQ(HostOfAuthority("[::1]"), "::1");
  EXPECT_EQ(HostOfAuthority("a.example:"), "a.example");
  for (const char* none :
       {"", ":80", "[::1", "[localhost]:80", "[::1]x", "localhost:80:80",
        "localhost:80@evil.example", "::1", "127.0.0.1:80/x"}) {
    EXPECT_EQ(HostOfAuthority(none), "") << none;
  }
}

Access OfHost(const AccessRules& rules, std::string_view host) {
  return rules.Check(
      {.path = "/stats", .remote_address = "127.0.0.1", .host = host});
}

TEST(AccessTest, WithoutAKeyTheHostMustBeThisMachine) {
  const AccessRules rules({});
  EXPECT_EQ(rules.Check({.path = "/stats", .remote_address = "127.0.0.1"}),
            Access::kAllowed);
  for (const char* ours : {"localhost", "localhost:8080", "LOCALHOST",
                           "127.0.0.1:8080", "127.1.2.3", "[::1]:8080"}) {
    EXPECT_EQ(OfHost(rules, ours), Access::kAllowed) << ours;
  }
  // A name may lead here for a moment, whoever owns it.
  for (const char* foreign :
       {"evil.example", "evil.example:8080", "localhost.evil.example",
        "127.0.0.1.evil.example", "10.0.0.1", "", ":8080", "0.0.0.0",
        "localhost:80:80", "evil.example@localhost"}) {
    EXPECT_EQ(OfHost(rules, foreign), Access::kWrongHost) << foreign;
  }
  EXPECT_EQ(OfHost(AccessRules({.api_key = "k"}), "evil.example"),
            Access::kWrongKey);
  EXPECT_EQ(
      AccessRules({.api_key = "k"})
          .Check({.path = "/stats", .x_api_key = "k", .host = "a.example"}),
      Access::kAllowed);
  EXPECT_EQ(rules.Check({.path = "/health", .host = "evil.example"}),
            Access::kAllowed);
}

TEST(AccessTest, NamesOfThisMachineCanBeGiven) {
  const AccessRules named(
      {.listen_host = "Big.lan", .allowed_hosts = {"Box", "other.lan"}});
  for (const char* ours :
       {"big.lan", "BIG.LAN:1", "box:8080", "other.lan", "localhost"}) {
    EXPECT_EQ(OfHost(named, ours), Access::kAllowed) << ours;
  }
  EXPECT_EQ(OfHost(named, "lan"), Access::kWrongHost);
}

TEST(AccessTest, WhereOthersGetInTheHostMayBeAnyAddressAndNoOtherName) {
  const AccessRules open({.listen_host = "0.0.0.0"});
  for (const char* ours :
       {"10.0.0.1:8080", "[fe80::1]:8080", "localhost", "0.0.0.0"}) {
    EXPECT_EQ(OfHost(open, ours), Access::kAllowed) << ours;
  }
  EXPECT_EQ(OfHost(open, "evil.example"), Access::kWrongHost);
}

TEST(AccessTest, WithoutAKeyPagesOfOtherMachinesMayNotAsk) {
  const AccessRules rules({});
  const auto of_origin = [](const AccessRules& r, std::string_view host,
                            std::string_view origin) {
    return r.Check({.path = "/admin/drain",
                    .remote_address = "127.0.0.1",
                    .host = host,
                    .origin = origin});
  };
  for (const char* ours : {"http://localhost:3000", "http://127.0.0.1",
                           "https://[::1]:8443", "tauri://localhost"}) {
    EXPECT_EQ(of_origin(rules, "localhost:8080", ours), Access::kAllowed)
        << ours;
  }
  for (const char* foreign :
       {"https://evil.example", "null", "", "http://", "evil.example",
        "http://10.0.0.1", "http://localhost.evil.example",
        "chrome-extension://abcdef", "http://localhost:x"}) {
    EXPECT_EQ(of_origin(rules, "localhost:8080", foreign), Access::kWrongOrigin)
        << foreign;
  }
  // An address that others know the server by, and a page of another one.
  const AccessRules open({.listen_host = "0.0.0.0"});
  EXPECT_EQ(of_origin(open, "10.0.0.1:8080", "http://10.0.0.1:3000"),
            Access::kAllowed);
  EXPECT_EQ(of_origin(open, "10.0.0.1:8080", "http://10.0.0.2:8080"),
            Access::kWrongOrigin);
  EXPECT_EQ(AccessRules({.api_key = "k"})
                .Check({.path = "/stats",
                        .x_api_key = "k",
                        .origin = "https://a.example"}),
            Access::kAllowed);
}

TEST(AccessTest, AKeyProtectsEverythingButHealth) {
  const AccessRules rules({.api_key = "secret"});
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
  const AccessRules rules({.api_key = "secret"});
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
