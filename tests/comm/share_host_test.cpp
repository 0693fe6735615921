#include <gtest/gtest.h>

#include "base/processors.h"
#include "comm/group.h"

namespace millrace::comm {
namespace {

TEST(HostShare, RanksTakeTheDevicesInTurns) {
    EXPECT_EQ(device_of_rank(nullptr, 8, 0), "0");
    EXPECT_EQ(device_of_rank(nullptr, 8, 7), "7");
    EXPECT_EQ(device_of_rank(nullptr, 1, 3), "0");
    EXPECT_EQ(device_of_rank(nullptr, 0, 3), "");
    EXPECT_EQ(device_of_rank("2,GPU-5e,MIG-1", 8, 1), "GPU-5e");
    EXPECT_EQ(device_of_rank("2,GPU-5e,MIG-1", 8, 4), "GPU-5e");
    EXPECT_EQ(device_of_rank("5", 8, 2), "5");
    EXPECT_EQ(device_of_rank("", 8, 1), "");
}

TEST(HostShare, ProcessorsAreDividedAmongThoseWhoShareThem) {
    const int all = base::usable_processors();
    base::processor_sharers = all;
    EXPECT_EQ(base::usable_processors(), 1);
    base::processor_sharers = 2 * all;
    EXPECT_EQ(base::usable_processors(), 1);
    base::processor_sharers = 1;
    EXPECT_EQ(base::usable_processors(), all);
}

TEST(HostShare, AloneAProcessHasAll) {
    Group group;
    ASSERT_TRUE(share_host(group).ok());
    EXPECT_EQ(base::processor_sharers, 1);
}

TEST(Agreement, OfOneIsItsOwn) {
    Group group;
    EXPECT_TRUE(group.agree(base::ok()).ok());
    EXPECT_FALSE(group.refused());
    const auto failed = group.agree(base::Status(base::Error{"what", "where", 4}));
    EXPECT_TRUE(group.refused());
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().text(), "where: what");
    EXPECT_EQ(failed.error().exit_status, 4);
}

}  // namespace
}  // namespace millrace::comm
