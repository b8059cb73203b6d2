/* The arithmetic of _kernel.c, included once per instruction set; NAME() adds its suffix to every function. */

#define load NAME(load)
#define store NAME(store)
#define blend NAME(blend)
#define larger NAME(larger)
#define total NAME(total)
#define largest NAME(largest)
#define conv1 NAME(conv1)
#define pool NAME(pool)
#define unpool NAME(unpool)
#define conv2 NAME(conv2)
#define dense NAME(dense)
#define features NAME(features)
#define back_dense NAME(back_dense)
#define add_dense NAME(add_dense)
#define add_rounded NAME(add_rounded)
#define back_conv2_input NAME(back_conv2_input)
#define back_conv2_weights NAME(back_conv2_weights)
#define back_conv1_weights NAME(back_conv1_weights)
#define square NAME(square)
#define wide_square NAME(wide_square)
#define add_scaled NAME(add_scaled)
#define backward NAME(backward)
#define prepare NAME(prepare)
#define cnn_sum NAME(cnn_sum)
#define cnn_forward NAME(cnn_forward)
#define tile NAME(tile)
#define strip4 NAME(strip4)
#define strip2 NAME(strip2)
#define strip1 NAME(strip1)
#define multiply NAME(multiply)
#define exponential NAME(exponential)
#define hyperbolic NAME(hyperbolic)
#define activate NAME(activate)
#define slope NAME(slope)
#define loss NAME(loss)
#define gather NAME(gather)
#define scatter NAME(scatter)
#define gather_all NAME(gather_all)
#define scatter_all NAME(scatter_all)
#define lay_out NAME(lay_out)
#define fetch NAME(fetch)
#define fetch_packed NAME(fetch_packed)
#define bits_of NAME(bits_of)
#define add_active NAME(add_active)
#define multiply_active NAME(multiply_active)
#define transpose_bits NAME(transpose_bits)
#define add_outer NAME(add_outer)
#define outer_active NAME(outer_active)
#define outputs_few NAME(outputs_few)
#define loss_few NAME(loss_few)
#define inputs_few NAME(inputs_few)
#define scale_few NAME(scale_few)
#define outer_few NAME(outer_few)
#define outer_few_all NAME(outer_few_all)
#define spread NAME(spread)
#define add_norms NAME(add_norms)
#define square_of NAME(square_of)
#define factors NAME(factors)
#define drop NAME(drop)
#define scale_rows NAME(scale_rows)
#define scale_all NAME(scale_all)
#define mostly_idle NAME(mostly_idle)
#define go_forward NAME(go_forward)
#define at_the_top NAME(at_the_top)
#define go_back NAME(go_back)
#define add_gradients NAME(add_gradients)
#define copy_out NAME(copy_out)
#define mlp_sum NAME(mlp_sum)
#define product NAME(product)
#define begin NAME(begin)
#define philox NAME(philox)
#define join NAME(join)
#define as_float NAME(as_float)
#define minus_two_log NAME(minus_two_log)
#define normals NAME(normals)
#define fill_normals NAME(fill_normals)
#define add_normals NAME(add_normals)
#define descend NAME(descend)
#define fill_words NAME(fill_words)


INLINE v16 load(const float *p) { return *(const v16u *)p; }
INLINE void store(float *p, v16 v) { *(v16u *)p = v; }
INLINE v16 blend(i16 mask, v16 a, v16 b) { return (v16)((mask & (i16)a) | (~mask & (i16)b)); }
INLINE v16 larger(v16 a, v16 b) { return blend(a > b, a, b); }
INLINE float total(v16 v) {
    const v8f a = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                  __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
    const v4f b = __builtin_shufflevector(a, a, 0, 1, 2, 3) + __builtin_shufflevector(a, a, 4, 5, 6, 7);
    return (b[0] + b[2]) + (b[1] + b[3]);
}
INLINE float largest(v16 v) {
    v = larger(v, __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
    v = larger(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3));
    const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
}

INLINE float square(const float *p, int n) {
    v16 s = {0};
    for (int i = 0; i < n; i += 16) s += load(p + i) * load(p + i);
    return total(s);
}

/* to += f * from rounded to whole numbers: sums of whole numbers below 2^53 are exact in any order. */
INLINE void add_rounded(double *to, const float *from, float f, int n) {
    const double whole = 0x1.8p52; /* adding it rounds to whole numbers */
    for (int i = 0; i < n; i += 16) {
        const v16 v = load(from + i) * f;
        const v8f lo = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7);
        const v8f hi = __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
        *(d8u *)(to + i) += (__builtin_convertvector(lo, d8) + whole) - whole;
        *(d8u *)(to + i + 8) += (__builtin_convertvector(hi, d8) + whole) - whole;
    }
}

#include "_kernel_active.h"

#include "_kernel_mlp.h"

#include "_kernel_cnn.h"

#include "_kernel_noise.h"

#undef load
#undef store
#undef blend
#undef larger
#undef total
#undef largest
#undef conv1
#undef pool
#undef unpool
#undef conv2
#undef dense
#undef features
#undef back_dense
#undef add_dense
#undef add_rounded
#undef back_conv2_input
#undef back_conv2_weights
#undef back_conv1_weights
#undef square
#undef wide_square
#undef add_scaled
#undef backward
#undef prepare
#undef cnn_sum
#undef cnn_forward
#undef tile
#undef strip4
#undef strip2
#undef strip1
#undef multiply
#undef exponential
#undef hyperbolic
#undef activate
#undef slope
#undef loss
#undef gather
#undef scatter
#undef gather_all
#undef scatter_all
#undef lay_out
#undef fetch
#undef fetch_packed
#undef bits_of
#undef add_active
#undef multiply_active
#undef transpose_bits
#undef add_outer
#undef outer_active
#undef outputs_few
#undef loss_few
#undef inputs_few
#undef scale_few
#undef outer_few
#undef outer_few_all
#undef spread
#undef add_norms
#undef square_of
#undef factors
#undef drop
#undef scale_rows
#undef scale_all
#undef mostly_idle
#undef go_forward
#undef at_the_top
#undef go_back
#undef add_gradients
#undef copy_out
#undef mlp_sum
#undef product
#undef begin
#undef philox
#undef join
#undef as_float
#undef minus_two_log
#undef normals
#undef fill_normals
#undef add_normals
#undef descend
#undef fill_words
