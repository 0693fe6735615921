#include "bench/bench.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace millrace::bench {
namespace {

using std::chrono::milliseconds;

/// A device whose products take the times that a test gives them, by a clock that only they move. Its memory is the host's.
class TimedBackend final : public ops::Backend {
public:
    class HostMemory final : public ops::Memory {
    public:
        explicit HostMemory(std::size_t bytes) : bytes_(bytes) {}
        [[nodiscard]] std::byte* data() override { return bytes_.data(); }
        [[nodiscard]] std::size_t size() const override { return bytes_.size(); }

    private:
        std::vector<std::byte> bytes_;
    };
    class Product final : public ops::Kernel {
    public:
        explicit Product(TimedBackend& backend) : backend_(backend) {}
        void run() noexcept override {
            ++backend_.products;
            backend_.clock.advance(backend_.products == backend_.slow_product ? milliseconds{900} : milliseconds{2});
        }

    private:
        TimedBackend& backend_;
    };

    [[nodiscard]] ops::DeviceKind kind() const override { return ops::DeviceKind::cpu; }
    [[nodiscard]] std::string description() const override { return "timed"; }
    [[nodiscard]] base::Result<std::unique_ptr<ops::Memory>> allocate(std::size_t bytes) override {
        return std::unique_ptr<ops::Memory>(std::make_unique<HostMemory>(bytes));
    }
    [[nodiscard]] base::Result<std::unique_ptr<ops::Memory>> allocate_shared(std::size_t bytes) override {
        return allocate(bytes);
    }
    void upload(std::byte* device, const void* host, std::size_t bytes) override { std::memcpy(device, host, bytes); }
    void download(void* host, const std::byte* device, std::size_t bytes) override { std::memcpy(host, device, bytes); }
    void clear(std::byte* device, std::size_t bytes) override { std::memset(device, 0, bytes); }
    [[nodiscard]] base::Result<std::unique_ptr<ops::Uploader>> make_uploader() override {
        return base::Error{"copies nothing beside its products"};
    }
    void synchronize() override {}
    [[nodiscard]] base::Status check() override { return failure ? base::Status(*failure) : base::ok(); }
    [[nodiscard]] base::Result<std::vector<std::unique_ptr<ops::Kernel>>> prepare(std::span<const ops::Bound>,
                                                                                  std::span<const ops::Section>,
                                                                                  std::span<std::byte>) override {
        std::vector<std::unique_ptr<ops::Kernel>> kernels;
        kernels.push_back(std::make_unique<Product>(*this));
        return kernels;
    }

    base::FakeClock clock;
    int products = 0;
    int slow_product = 0;  ///< takes 900 ms, the others 2
    std::optional<base::Error> failure;
};

TEST(ProductCeiling, IsTheRateOfTheMedianWindow) {
    TimedBackend backend;
    backend.slow_product = 20;
    const auto rate = product_ceiling(backend, tape::Precision::f32, 100, 10, backend.clock);
    ASSERT_TRUE(rate.ok()) << rate.error().text();
    EXPECT_DOUBLE_EQ(*rate, 2e6 / 2e-3) << "2 x 100^3 FLOP in 2 ms";
    EXPECT_EQ(backend.products, 2 + 7 * 5) << "two to warm up and to size the windows, then seven of 10 ms";
}

TEST(ProductCeiling, AFailureOfTheDeviceIsNoRate) {
    TimedBackend backend;
    backend.failure = base::Error{"the device is gone"};
    const auto rate = product_ceiling(backend, tape::Precision::bf16, 8, 10, backend.clock);
    ASSERT_FALSE(rate.ok());
    EXPECT_EQ(rate.error().message, "the device is gone");
}

TEST(ProductCeiling, RealBackendsHaveOne) {
    for (const ops::DeviceKind device : {ops::DeviceKind::cpu, ops::DeviceKind::cuda})
        for (const tape::Precision precision : {tape::Precision::f32, tape::Precision::bf16}) {
            if (device == ops::DeviceKind::cpu && precision == tape::Precision::bf16) continue;  // has no kernels for it
            auto backend = ops::make_backend(device, {false, 1});
            if (!backend.ok()) {
                ASSERT_EQ(device, ops::DeviceKind::cuda) << backend.error().text();
                continue;
            }
            const auto rate = product_ceiling(**backend, precision, 256, 0.1);
            ASSERT_TRUE(rate.ok()) << rate.error().text();
            EXPECT_GT(*rate, 0);
            EXPECT_TRUE(std::isfinite(*rate));
        }
}

}  // namespace
}  // namespace millrace::bench
