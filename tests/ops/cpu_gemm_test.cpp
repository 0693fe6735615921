// Products of the CPU backend against sums in double, and their independence of threads, blocks and members.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <tuple>
#include <vector>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/gemm.h"

namespace millrace::ops::cpu {
namespace {

using tensor::Operand;

/// Matrices [k, g, rows, cols] with room around every row, filled with small random numbers.
struct Matrices {
    std::vector<float> values;
    Operand view;

    Matrices(int k, int g, int rows, int cols, unsigned seed, int pad = 3) {
        view.k = k, view.g = g, view.rows = rows, view.cols = cols;
        view.stride_row = cols + pad;
        view.stride_g = view.stride_row * rows + 5;
        view.stride_k = view.stride_g * g + 7;
        values.resize(static_cast<std::size_t>(view.stride_k) * k + 64);
        std::mt19937 random(seed);
        std::uniform_real_distribution<float> uniform(-1, 1);
        for (float& v : values) v = uniform(random);
        view.data = values.data();
    }
    [[nodiscard]] float at(int k, int g, int r, int c) const { return view.at<float>(k, g, r)[c]; }
};

struct GemmShape {
    int k, g, m, n, d;
};
const GemmShape kGemmShapes[] = {{1, 1, 1, 1, 1},    {1, 1, 5, 3, 2},      {1, 2, 32, 64, 128}, {2, 3, 17, 19, 23},
                                 {1, 1, 33, 10, 96}, {1, 1, 32, 256, 784}, {3, 1, 7, 101, 257}, {1, 1, 150, 37, 513},
                                 {1, 1, 6, 65, 0},   {2, 2, 131, 16, 5}};

enum class Form { forward, dgrad, wgrad };

/// c = product of the form, by a table's kernels with `threads`.
void multiply(const SimdKernels* table, Form form, int threads, const Operand& a, const Operand& b, const Operand& c,
              bool accumulate) {
    Context context(threads, *table);
    if (form == Form::forward) {
        const ForwardProduct product(context, a, b, true);
        ASSERT_TRUE(context.scratch.allocate().ok());
        product.pack();
        context.pool.for_each(product.blocks(), [&](int index, int worker) {
            const ForwardProduct::Block block = product.block(index);
            product.run(block, c.at<float>(block.member, block.group, block.row) + block.col, c.stride_row, worker);
        });
        return;
    }
    const GradProduct product(context, a, b, c, form == Form::wgrad, accumulate);
    ASSERT_TRUE(context.scratch.allocate().ok());
    product.run();
}

struct Operands {
    Matrices a, b, c;
    Operands(Form form, const GemmShape& s)
        : a(form == Form::wgrad ? Matrices(s.k, s.g, s.d, s.m, 1) : Matrices(s.k, s.g, s.m, s.d, 1)),
          b(form == Form::forward ? Matrices(s.k, s.g, s.n, s.d, 2) : Matrices(s.k, s.g, s.d, s.n, 2)),
          c(s.k, s.g, s.m, s.n, 3) {
        a.view.data = a.values.data(), b.view.data = b.values.data(), c.view.data = c.values.data();
    }
};

using KernelTable = const SimdKernels*;

class Products : public ::testing::TestWithParam<std::tuple<Form, KernelTable>> {
protected:
    const Form form = std::get<0>(GetParam());
    const KernelTable table = std::get<1>(GetParam());
};
class ForwardProducts : public ::testing::TestWithParam<KernelTable> {};

TEST_P(Products, OddShapesMatchSumsInDouble) {
    for (const GemmShape& s : kGemmShapes) {
        for (const bool accumulate : {false, true}) {
            if (accumulate && form == Form::forward) continue;
            Operands o(form, s);
            const std::vector<float> before = o.c.values;
            multiply(table, form, 2, o.a.view, o.b.view, o.c.view, accumulate);
            std::vector<float> expected = before;
            Operand e = o.c.view;
            e.data = expected.data();
            for (int k = 0; k < s.k; ++k)
                for (int g = 0; g < s.g; ++g)
                    for (int m = 0; m < s.m; ++m)
                        for (int n = 0; n < s.n; ++n) {
                            double sum = accumulate ? static_cast<double>(e.at<float>(k, g, m)[n]) : 0;
                            for (int d = 0; d < s.d; ++d) {
                                const float a = form == Form::wgrad ? o.a.at(k, g, d, m) : o.a.at(k, g, m, d);
                                const float b = form == Form::forward ? o.b.at(k, g, n, d) : o.b.at(k, g, d, n);
                                sum += static_cast<double>(a) * static_cast<double>(b);
                            }
                            e.at<float>(k, g, m)[n] = static_cast<float>(sum);
                        }
            for (std::size_t i = 0; i < expected.size(); ++i)  // also what lies between the rows: it must not change
                ASSERT_NEAR(o.c.values[i], expected[i], 2e-6 * (s.d + 8)) << s.m << "x" << s.n << "x" << s.d << " at " << i;
        }
    }
}

TEST_P(Products, ThreadsAndMembersLeaveEveryBitAlone) {
    for (const GemmShape& s : kGemmShapes) {
        Operands one(form, s), many(form, s), single(form, s);
        multiply(table, form, 1, one.a.view, one.b.view, one.c.view, false);
        multiply(table, form, 4, many.a.view, many.b.view, many.c.view, false);
        EXPECT_EQ(one.c.values, many.c.values);
        for (int k = 0; k < s.k; ++k) {
            Operand a = single.a.view, b = single.b.view, c = single.c.view;
            for (Operand* o : {&a, &b, &c}) {
                o->data = o->at<float>(k);
                o->k = 1;
            }
            multiply(table, form, 2, a, b, c, false);
        }
        EXPECT_EQ(one.c.values, single.c.values);
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, Products,
                         ::testing::Combine(::testing::Values(Form::forward, Form::dgrad, Form::wgrad),
                                            ::testing::ValuesIn(tables())),
                         [](const auto& given) {
                             const Form form = std::get<0>(given.param);
                             const char* name = form == Form::forward ? "Forward" : form == Form::dgrad ? "Dgrad" : "Wgrad";
                             return std::string(name) + "_" + std::get<1>(given.param)->id;
                         });
INSTANTIATE_TEST_SUITE_P(Tables, ForwardProducts, ::testing::ValuesIn(tables()),
                         [](const auto& given) { return std::string(given.param->id); });

TEST_P(ForwardProducts, GroupsMayShareOneInput) {
    Matrices x(2, 1, 21, 33, 1), w(2, 3, 18, 33, 2), shared(2, 3, 21, 18, 3), separate(2, 3, 21, 18, 3);
    Operand broadcast = x.view;
    broadcast.g = 3;
    broadcast.stride_g = 0;
    multiply(GetParam(), Form::forward, 2, broadcast, w.view, shared.view, false);
    for (int g = 0; g < 3; ++g) {
        Operand weight = w.view, out = separate.view;
        weight.data = weight.at<float>(0, g), weight.g = 1;
        out.data = out.at<float>(0, g), out.g = 1;
        multiply(GetParam(), Form::forward, 2, x.view, weight, out, false);
    }
    EXPECT_EQ(shared.values, separate.values);
}

TEST_P(ForwardProducts, NanReachesOnlyItsOwnRow) {
    Matrices x(1, 1, 9, 40, 1), w(1, 1, 20, 40, 2), y(1, 1, 9, 20, 3);
    x.view.at<float>(0, 0, 4)[39] = std::nanf("");
    multiply(GetParam(), Form::forward, 2, x.view, w.view, y.view, false);
    for (int r = 0; r < 9; ++r)
        for (int c = 0; c < 20; ++c) EXPECT_EQ(std::isnan(y.at(0, 0, r, c)), r == 4) << r << "," << c;
}

}  // namespace
}  // namespace millrace::ops::cpu
