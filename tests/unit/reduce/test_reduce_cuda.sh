#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
#
# lib/reduce/element.h is CUDA as well as C: nvcc compiles every function of it for the host and for
# a device. No GPU is needed; without nvcc the test is skipped.
set -euo pipefail
nvcc=${NVCC:-nvcc}
if ! command -v "$nvcc" >/dev/null; then
	if [ -x /usr/local/cuda/bin/nvcc ]; then
		nvcc=/usr/local/cuda/bin/nvcc
	else
		echo "SKIP: no CUDA compiler (nvcc) on the path"
		exit 77
	fi
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

{
	echo '#include "lib/reduce/element.h"'
	# kernel NAME TYPE: all operations of a type
	kernel() {
		printf '__global__ void all_%s(%s *x, const %s *y, uint32_t n)\n{\n' "$1" "$2" "$2"
		for op in sum prod max min; do
			printf '\t*x = element_%s_%s(*x, *y);\n' "$op" "$1"
		done
		printf '\t*x = element_quotient_%s(*x, n);\n}\n' "$1"
		printf '%s host_%s(%s x, %s y)\n{\n\treturn element_sum_%s(x, y);\n}\n' \
			"$2" "$1" "$2" "$2" "$1"
	}
	while read -r name type; do
		kernel "$name" "$type"
	done <<-'END'
		i8 int8_t
		u8 uint8_t
		i32 int32_t
		u32 uint32_t
		i64 int64_t
		u64 uint64_t
		f16 uint16_t
		f32 float
		f64 double
		bf16 uint16_t
		e4m3 uint8_t
		e5m2 uint8_t
	END
	cat <<-'END'
		__global__ void wire(float *x, uint16_t *y, int8_t *z, uint32_t amax)
		{
			uint16_t scale = element_block_scale(amax);

			*z = element_to_block(*x, 1.0f / element_from_bf16(scale));
			*x = element_from_block(*z, element_from_bf16(scale));
			*y = element_to_f16(
				element_saturate(*x, ELEMENT_LIMIT_F16, ELEMENT_LARGEST_F16));
		}
	END
} >"$dir/element.cu"
cd "$FRL_SOURCE_ROOT"
"$nvcc" -Werror all-warnings -I. -c "$dir/element.cu" -o "$dir/element.o"
echo "compiled by $("$nvcc" --version | grep release)"
