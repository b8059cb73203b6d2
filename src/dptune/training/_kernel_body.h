/* The arithmetic of _kernel.c, included once per instruction set; NAME() adds its suffix to every function. */

#define vec NAME(vec)
#define loose NAME(loose)
#define ints NAME(ints)
#define half NAME(half)
#define doubles NAME(doubles)
#define loose_doubles NAME(loose_doubles)
#define lower NAME(lower)
#define upper NAME(upper)
#define load NAME(load)
#define store NAME(store)
#define blend NAME(blend)
#define nonzero NAME(nonzero)
#define find_span NAME(find_span)
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
#define multiply_fresh NAME(multiply_fresh)
#define multiply_parts NAME(multiply_parts)
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
#define finite_all NAME(finite_all)
#define mlp_sum NAME(mlp_sum)
#define rows_forward NAME(rows_forward)
#define rows_back NAME(rows_back)
#define rows_forward_1 NAME(rows_forward_1)
#define rows_forward_2 NAME(rows_forward_2)
#define rows_forward_3 NAME(rows_forward_3)
#define rows_forward_4 NAME(rows_forward_4)
#define rows_forward_5 NAME(rows_forward_5)
#define rows_back_1 NAME(rows_back_1)
#define rows_back_2 NAME(rows_back_2)
#define rows_back_3 NAME(rows_back_3)
#define rows_back_4 NAME(rows_back_4)
#define rows_back_5 NAME(rows_back_5)
#define rows_at NAME(rows_at)
#define rows_outputs NAME(rows_outputs)
#define rows_gradients NAME(rows_gradients)
#define rows_clip NAME(rows_clip)
#define softmax_sum NAME(softmax_sum)
#define dense_row NAME(dense_row)
#define mlp_forward NAME(mlp_forward)
#define uints NAME(uints)
#define half_uints NAME(half_uints)
#define longs NAME(longs)
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


/* LANES floats, what one register holds: wider vectors compile, but compilers take them apart badly. */
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef float half __attribute__((vector_size(2 * LANES)));
typedef double doubles __attribute__((vector_size(4 * LANES)));
typedef double loose_doubles __attribute__((vector_size(4 * LANES), aligned(8), may_alias));
#define ROOMY (LANES == 16) /* 32 registers, else 16 */

INLINE vec load(const float *p) { return *(const loose *)p; }
INLINE void store(float *p, vec v) { *(loose *)p = v; }
INLINE vec blend(ints mask, vec a, vec b) { return (vec)((mask & (ints)a) | (~mask & (ints)b)); }
INLINE vec larger(vec a, vec b) { return blend(a > b, a, b); }

/* The two halves of a vector. */
#if LANES == 16
#define LOWER 0, 1, 2, 3, 4, 5, 6, 7
#define UPPER 8, 9, 10, 11, 12, 13, 14, 15
#elif LANES == 8
#define LOWER 0, 1, 2, 3
#define UPPER 4, 5, 6, 7
#else
#define LOWER 0, 1
#define UPPER 2, 3
#endif
INLINE doubles lower(vec v) { return __builtin_convertvector(__builtin_shufflevector(v, v, LOWER), doubles); }
INLINE doubles upper(vec v) { return __builtin_convertvector(__builtin_shufflevector(v, v, UPPER), doubles); }
INLINE float total(vec v) {
    const half h = __builtin_shufflevector(v, v, LOWER) + __builtin_shufflevector(v, v, UPPER);
    float part[LANES / 2];
    memcpy(part, &h, sizeof part);
    for (int n = LANES / 4; n; n /= 2)
        for (int i = 0; i < n; i++) part[i] += part[i + n];
    return part[0];
}
INLINE float largest(vec v) {
    float part[LANES];
    memcpy(part, &v, sizeof part);
    for (int n = LANES / 2; n; n /= 2)
        for (int i = 0; i < n; i++) part[i] = part[i] > part[i + n] ? part[i] : part[i + n];
    return part[0];
}
#undef LOWER
#undef UPPER

/* Bit i: lane i is not zero. */
INLINE uint32_t nonzero(vec v) {
#if defined(CHOICE) && LANES == 16
    return _mm512_cmp_ps_mask((__m512)v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
#elif defined(CHOICE) && LANES == 8
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps((__m256)v, _mm256_setzero_ps(), _CMP_NEQ_UQ));
#else
    uint32_t found = 0;
    for (int i = 0; i < LANES; i++) found |= (uint32_t)(v[i] != 0) << i;
    return found;
#endif
}

INLINE float square(const float *p, int n) {
    vec s = {0};
    for (int i = 0; i < n; i += LANES) s += load(p + i) * load(p + i);
    return total(s);
}

/* to += f * from rounded to whole numbers: sums of whole numbers below 2^53 are exact in any order. */
INLINE void add_rounded(double *to, const float *from, float f, int n) {
    const double whole = 0x1.8p52; /* adding it rounds to whole numbers */
    for (int i = 0; i < n; i += LANES) {
        const vec v = load(from + i) * f;
        *(loose_doubles *)(to + i) += (lower(v) + whole) - whole;
        *(loose_doubles *)(to + i + LANES / 2) += (upper(v) + whole) - whole;
    }
}

#include "_kernel_active.h"

#include "_kernel_mlp.h"

#include "_kernel_softmax.h"

#include "_kernel_forward.h"

#include "_kernel_cnn.h"

#include "_kernel_net_layers.h"

#include "_kernel_net_sum.h"

#include "_kernel_noise.h"

#include "_kernel_secure.h"

#undef vec
#undef loose
#undef ints
#undef half
#undef doubles
#undef loose_doubles
#undef lower
#undef upper
#undef ROOMY
#undef load
#undef store
#undef blend
#undef nonzero
#undef find_span
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
#undef multiply_fresh
#undef multiply_parts
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
#undef finite_all
#undef mlp_sum
#undef rows_forward
#undef rows_back
#undef rows_forward_1
#undef rows_forward_2
#undef rows_forward_3
#undef rows_forward_4
#undef rows_forward_5
#undef rows_back_1
#undef rows_back_2
#undef rows_back_3
#undef rows_back_4
#undef rows_back_5
#undef rows_at
#undef rows_outputs
#undef rows_gradients
#undef rows_clip
#undef softmax_sum
#undef dense_row
#undef mlp_forward
#undef uints
#undef half_uints
#undef longs
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
